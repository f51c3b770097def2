// SPDX-License-Identifier: GPL-2.0-only
/* Feeds the state machine with events from a map: for the test that compares it with the one in Rust. */
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>

#include "host.h"
#include "machine.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct vcpu);
} machine SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct replay);
} events SEC(".maps");

SEC("syscall")
int replay(void *ctx)
{
	u32 zero = 0, i;
	struct vcpu *v = bpf_map_lookup_elem(&machine, &zero);
	struct replay *replay = bpf_map_lookup_elem(&events, &zero);

	if (!v || !replay)
		return 1;
	for (i = 0; i < MAX_REPLAY && i < replay->count; i++) {
		struct event *event = &replay->events[i];
		u64 now = event->ns;

		switch (event->kind) {
		case EVENT_EXIT:
			on_guest_exit(v, event->reason, now);
			break;
		case EVENT_ENTRY:
			on_guest_entry(v, now);
			break;
		case EVENT_REFINE:
			refine(v, event->reason);
			break;
		case EVENT_OUT_RUNNABLE:
			switched_out(v, false, now);
			break;
		case EVENT_OUT_ASLEEP:
			switched_out(v, true, now);
			break;
		case EVENT_IN:
			switched_in(v, now);
			break;
		case EVENT_WAKING:
			v->woken_ns = now;
			break;
		case EVENT_TO_VMM:
			went_to_vmm(v);
			break;
		case EVENT_RESUMED:
			resumes(v, event->reason, now, now);
			break;
		default:
			return 2;
		}
	}
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
