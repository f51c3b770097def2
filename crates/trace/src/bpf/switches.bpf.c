// SPDX-License-Identifier: GPL-2.0-only
/*
 * An alarm that a load begins: reports once that one vCPU has switched so often
 * between threads since the alarm was armed. Attached only while it is armed:
 * at half a million switches a second even an empty program here costs a few
 * per cent.
 */
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>

/* User space writes these when it arms the alarm. */
volatile u64 at_least;
volatile u32 reported;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} switches SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} reports SEC(".maps");

SEC("raw_tp/sched_switch")
int on_switch(void *ctx)
{
	u32 zero = 0;
	u64 *number = bpf_map_lookup_elem(&switches, &zero);

	if (!number || ++*number < at_least || __sync_lock_test_and_set(&reported, 1))
		return 0;
	/* There is room: one report per arming, and it is read before the next. */
	bpf_ringbuf_output(&reports, number, sizeof(*number), 0);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
