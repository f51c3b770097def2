"""Two processes that pass one message back and forth over a pair of pipes. Prints round trips per second."""

import multiprocessing
import time


def echo(inbox, outbox, others):
    # With the other ends open here, the end of the parent would not be the end of the pipe.
    for end in others:
        end.close()
    try:
        while True:
            outbox.send(inbox.recv())
    except (EOFError, BrokenPipeError):
        pass


def main():
    context = multiprocessing.get_context("fork")
    their_inbox, to_them = context.Pipe(duplex=False)
    our_inbox, to_us = context.Pipe(duplex=False)
    context.Process(target=echo, args=(their_inbox, to_us, (to_them, our_inbox)), daemon=True).start()
    their_inbox.close()
    to_us.close()
    done, since = 0, time.monotonic()
    while True:
        for number in range(20):
            to_them.send(number)
            our_inbox.recv()
        done += 20
        now = time.monotonic()
        if now - since >= 1:
            print(f"rate: {done / (now - since):.1f}", flush=True)
            done, since = 0, now


main()
