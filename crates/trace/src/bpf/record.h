/* SPDX-License-Identifier: GPL-2.0-only */
/* Shared by the recording program and user space; src/record/raw.rs has the same. */
#ifndef GLEANER_RECORD_H
#define GLEANER_RECORD_H

/* A quarter of a million events; user space reads them every few milliseconds. */
#define RECORD_RING_BYTES (8 << 20)
#define COMM_BYTES 16

enum record_kind {
	RECORD_SWITCH,
	RECORD_WAKE,
	RECORD_NAME,
};

/* How a thread left its vCPU. */
enum record_left {
	LEFT_RUNNABLE,
	LEFT_BLOCKED,
	LEFT_BLOCKED_IO,
	LEFT_EXITED,
};

/* In place of a TID: no thread (an idle vCPU, an interrupt), or one outside the scope. */
#define TID_NOBODY 0
#define TID_OTHER 0xffffffff

struct record {
	/* On CLOCK_MONOTONIC. */
	u64 at_ns;
	u16 kind;
	u16 left;
	u32 cpu;
	/*
	 * A switch: previous and next thread. A wake-up: waker and wakee. A
	 * name: thread and process.
	 */
	u32 from;
	u32 to;
};

struct record_name {
	struct record record;
	u8 comm[COMM_BYTES];
};

_Static_assert(sizeof(struct record) == 24, "src/record/raw.rs reads 24 bytes");
_Static_assert(sizeof(struct record_name) == 40, "src/record/raw.rs reads 40 bytes");

#endif
