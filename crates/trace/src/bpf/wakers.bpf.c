// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counts which process wakes which. Wake-ups are frequent, so this is attached
 * for a moment.
 */
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "wakers.h"

/* Further pairs are not counted. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct pair);
	__type(value, u64);
} wakeups SEC(".maps");

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *p)
{
	struct pair pair = { .waker = bpf_get_current_pid_tgid() >> 32, .wakee = p->tgid };
	u64 none = 0, *number;

	if (p->flags & PF_KTHREAD)
		return 0;
	number = bpf_map_lookup_elem(&wakeups, &pair);
	if (!number) {
		/* Another vCPU may have added it. */
		bpf_map_update_elem(&wakeups, &pair, &none, BPF_NOEXIST);
		number = bpf_map_lookup_elem(&wakeups, &pair);
	}
	if (number)
		__sync_fetch_and_add(number, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
