"""Pairs of threads that pass an item back and forth through two queues. Prints round trips per second of all pairs."""

import queue
import sys
import threading
import time


def echo(inbox, outbox):
    while True:
        outbox.put(inbox.get())


def ask(outbox, inbox, counts, pair):
    while True:
        outbox.put(pair)
        inbox.get()
        counts[pair] += 1


def main():
    pairs = int(sys.argv[1])
    counts = [0] * pairs
    for pair in range(pairs):
        there, back = queue.Queue(), queue.Queue()
        threading.Thread(target=echo, args=(there, back), daemon=True).start()
        threading.Thread(target=ask, args=(there, back, counts, pair), daemon=True).start()
    before, since = 0, time.monotonic()
    while True:
        time.sleep(1)
        done, now = sum(counts), time.monotonic()
        print(f"rate: {(done - before) / (now - since):.1f}", flush=True)
        before, since = done, now


main()
