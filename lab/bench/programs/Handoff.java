import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.atomic.LongAdder;

/** Pairs of threads that hand items over through a SynchronousQueue. Prints items per second of all pairs. */
public class Handoff {
    public static void main(String[] args) throws InterruptedException {
        int pairs = Integer.parseInt(args[0]);
        LongAdder done = new LongAdder();
        for (int pair = 0; pair < pairs; pair++) {
            SynchronousQueue<Integer> queue = new SynchronousQueue<>();
            Integer item = pair;
            start(() -> queue.put(item));
            start(() -> {
                queue.take();
                done.increment();
            });
        }
        long before = 0;
        long since = System.nanoTime();
        while (true) {
            Thread.sleep(1000);
            long now = System.nanoTime();
            long sum = done.sum();
            System.out.println("rate: " + Math.round(1e9 * (sum - before) / (now - since)));
            before = sum;
            since = now;
        }
    }

    private interface Step {
        void run() throws InterruptedException;
    }

    private static void start(Step step) {
        Thread thread = new Thread(() -> {
            try {
                while (true) {
                    step.run();
                }
            } catch (InterruptedException end) {
                // Nobody interrupts; the process is ended.
            }
        });
        thread.setDaemon(true);
        thread.start();
    }
}
