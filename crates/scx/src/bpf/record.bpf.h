/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What happens and what is decided, event by event, for a replay of the
 * decisions elsewhere. Off, it costs nothing: the verifier removes it.
 */
#ifndef GLEANER_SCX_RECORD_H
#define GLEANER_SCX_RECORD_H

const volatile bool records = false;
/* Events that did not fit. */
u64 lost = 0;

/* Unused: puts the types, which no map or other variable has, in the BTF for user space. */
struct event unused_event = {};
const volatile enum event_kind unused_kind = EVENT_ENTERS;
const volatile enum queueing unused_queueing = QUEUE_FAIR;
const volatile enum choice unused_choice = CHOICE_IDLE;

/* User space makes it large enough. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

static __always_inline void send(struct event *event)
{
	event->on = bpf_get_smp_processor_id();
	if (bpf_ringbuf_output(&events, event, sizeof(*event), BPF_RB_NO_WAKEUP))
		__sync_fetch_and_add(&lost, 1);
}

#define RECORD(event_kind, fields...)						\
	do {									\
		if (records) {							\
			struct event event = { .kind = event_kind, ##fields };	\
										\
			send(&event);						\
		}								\
	} while (0)

/* pCPUs beyond the first 64 are not recorded; user space refuses to record with more. */
static __always_inline u64 allowed_to(struct task_struct *p)
{
	const struct cpumask *allowed = ((struct task_struct___scx *)p)->cpus_ptr;

	return BPF_CORE_READ(allowed, bits[0]);
}

static __always_inline u64 idle_pcpus(void)
{
	const struct cpumask *idle = scx_bpf_get_idle_cpumask();
	u64 bits = BPF_CORE_READ(idle, bits[0]);

	scx_bpf_put_idle_cpumask(idle);
	return bits;
}

/* The pCPU decides anew: at once, if it is this one. */
static __always_inline void kick(s32 cpu, u64 flags)
{
	RECORD(EVENT_KICKED, .cpu = cpu, .flag = flags == SCX_KICK_IDLE);
	scx_bpf_kick_cpu(cpu, flags);
}

#endif
