/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the vCPUs do: idle periods, interrupts sent, timers, locks. The kernel
 * itself counts interrupts received.
 */
#ifndef GLEANER_VCPU_H
#define GLEANER_VCPU_H

#define PWR_EVENT_EXIT ((u32)-1)

/*
 * State 0 is polling, if there is any polling (drivers/cpuidle/poll_state.c,
 * kernel/sched/idle.c).
 */
SEC("tp_btf/cpu_idle")
int BPF_PROG(on_idle, unsigned int state)
{
	struct vcpu *v = this_vcpu();
	u64 now = bpf_ktime_get_ns(), length;

	if (!v)
		return 0;
	if (state != PWR_EVENT_EXIT) {
		v->idle_since = now;
		v->idle_state = state;
		return 0;
	}
	v->idle_until = now;
	/* Idle since before tracing started. */
	if (!v->idle_since)
		return 0;
	length = now - v->idle_since;
	if (v->idle_state == 0)
		v->poll_ns += length;
	else
		v->halt_ns += length;
	add_length(v->idle_state == 0 ? HIST_IDLE_POLL : HIST_IDLE_HALT, length, 1);
	return 0;
}

SEC("tp_btf/sched_wake_idle_without_ipi")
int BPF_PROG(on_wake_without_ipi)
{
	count(COUNT_WAKE_WITHOUT_IPI, window.weight);
	return 0;
}

/* The callback is the function that the receiver runs; a reschedule interrupt has none. */
SEC("tp_btf/ipi_send_cpu")
int BPF_PROG(on_ipi, unsigned int cpu, unsigned long callsite, void *callback)
{
	count(callback ? COUNT_SENT_CALL : COUNT_SENT_RESCHEDULE, 1);
	return 0;
}

#define MAX_CPU_WORDS 16

static __always_inline u32 ones(u64 v)
{
	v -= (v >> 1) & 0x5555555555555555ULL;
	v = (v & 0x3333333333333333ULL) + ((v >> 2) & 0x3333333333333333ULL);
	v = (v + (v >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return (v * 0x0101010101010101ULL) >> 56;
}

/* Number of 64-bit words in the kernel's CPU masks; user space writes it. */
const volatile u32 cpu_words = 1;

static __always_inline u32 cpus_in(const struct cpumask *mask)
{
	u64 words[MAX_CPU_WORDS] = {};
	u32 bytes = (cpu_words < MAX_CPU_WORDS ? cpu_words : MAX_CPU_WORDS) * sizeof(u64);
	u32 i, n = 0;

	if (bpf_probe_read_kernel(words, bytes, mask))
		return 0;
	for (i = 0; i < MAX_CPU_WORDS; i++)
		n += ones(words[i]);
	return n;
}

SEC("tp_btf/ipi_send_cpumask")
int BPF_PROG(on_ipi_mask, const struct cpumask *mask, unsigned long callsite, void *callback)
{
	count(callback ? COUNT_SENT_CALL : COUNT_SENT_RESCHEDULE, cpus_in(mask));
	return 0;
}

/* include/linux/smp_types.h */
#define CSD_FLAG_TYPE_MASK 0xf0
#define CSD_TYPE_TTWU 0x30

SEC("tp_btf/csd_queue_cpu")
int BPF_PROG(on_call_queued, unsigned int cpu, unsigned long callsite, void *function,
	     struct __call_single_data *call)
{
	if ((call->node.u_flags & CSD_FLAG_TYPE_MASK) == CSD_TYPE_TTWU)
		count(COUNT_WAKE_QUEUED, 1);
	return 0;
}

/* In a VM each of these writes TSC_DEADLINE, which is an exit (TPDS'21 section 6.2.1). */
SEC("fentry/clockevents_program_event")
int BPF_PROG(on_timer_programmed)
{
	count_all(COUNT_TIMER_PROGRAMMED, 1);
	return 0;
}

/* enum tlb_flush_reason, include/linux/mm_types.h */
#define TLB_REMOTE_SEND_IPI 4

/* Switches to another address space are such events, too. */
SEC("tp_btf/tlb_flush")
int BPF_PROG(on_tlb_flush, int reason)
{
	if (reason == TLB_REMOTE_SEND_IPI)
		count(COUNT_SENT_TLB, window.weight);
	return 0;
}

/* Notes when a vCPU starts to spin or to wait for others. */
static __always_inline void start_on_vcpu(u64 *since)
{
	*since = bpf_ktime_get_ns();
}

/* Accounts what the running thread has lost. */
static __always_inline void end_on_vcpu(u64 *since, u32 hist, u64 weight)
{
	struct task_struct *p = bpf_get_current_task_btf();
	u64 start = *since;

	*since = 0;
	if (start && in_scope(p, state_of(p)))
		add_length(hist, bpf_ktime_get_ns() - start, weight);
}

/* How long a shootdown takes its sender. User space chooses the function that this kernel has. */
SEC("fentry/native_flush_tlb_multi")
int BPF_PROG(on_shootdown)
{
	struct vcpu *v = this_vcpu();

	if (v)
		start_on_vcpu(&v->shootdown_since);
	return 0;
}

SEC("fexit/native_flush_tlb_multi")
int BPF_PROG(on_shootdown_done)
{
	struct vcpu *v = this_vcpu();

	if (v)
		end_on_vcpu(&v->shootdown_since, HIST_SHOOTDOWN, 1);
	return 0;
}

SEC("tp_btf/tick_stop")
int BPF_PROG(on_tick_stop, int success)
{
	if (success)
		count_all(COUNT_TICK_STOPPED, 1);
	return 0;
}

#define MSR_IA32_TSC_DEADLINE 0x6e0

/* The same on x86 if fentry is not allowed. */
SEC("tp_btf/write_msr")
int BPF_PROG(on_write_msr, unsigned int msr)
{
	if (msr == MSR_IA32_TSC_DEADLINE)
		count_all(COUNT_TIMER_PROGRAMMED, 1);
	return 0;
}

SEC("fentry/do_sched_yield")
int BPF_PROG(on_yield)
{
	struct task_struct *p = bpf_get_current_task_btf();
	u64 weight = window.weight;
	struct thread *thread;
	struct task_state *t;

	count_all(COUNT_YIELD, weight);
	t = state_of(p);
	if (!t || !in_scope(p, t))
		return 0;
	count_scope(COUNT_YIELD, weight);
	update_name(p, t);
	thread = thread_of(t);
	if (thread)
		thread->yields += weight;
	return 0;
}

/* include/trace/events/lock.h */
#define LCB_F_SPIN 1

SEC("tp_btf/contention_begin")
int BPF_PROG(on_contention, void *lock, unsigned int flags)
{
	struct vcpu *v = this_vcpu();

	/* Pure spinning only: mutexes spin for a while before they sleep. */
	if (v && flags == LCB_F_SPIN)
		start_on_vcpu(&v->spin_since);
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(on_contention_end, void *lock)
{
	struct vcpu *v = this_vcpu();

	if (v && within(v->spin_since))
		end_on_vcpu(&v->spin_since, HIST_SPIN, window.weight);
	return 0;
}

#endif
