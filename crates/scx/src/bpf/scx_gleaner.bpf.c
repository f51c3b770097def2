// SPDX-License-Identifier: GPL-2.0-only
/*
 * A scheduler for KVM hosts that takes the interrupts between vCPUs for the
 * demand for coordination (ASPLOS'13, "the paper" here): vCPUs that must answer
 * an interrupt, or have just sent one, run first, as far as fairness between
 * VMs allows. What it decides is in logic.h; here is when and for whom.
 */
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#define LOGIC static __always_inline
#include "logic.h"
#include "kvm_types.h"
#include "sched_types.h"
#include "intf.h"
#include "record.bpf.h"
#include "state.bpf.h"
#include "fair.bpf.h"
#include "urgent.bpf.h"
#include "placement.bpf.h"
#include "choose.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* Unused: puts the enums in the BTF for user space. */
const volatile enum vector_use unused_use = USE_NONE;
const volatile enum stat unused_stat = STATS;

/* Why the kernel ended the scheduler; 0: it has not. */
struct {
	int kind;
	s64 code;
	char reason[128];
	char message[1024];
} ended = {};

static int on_timer(void *map, u32 *cpu, struct pcpu *c)
{
	scx_bpf_kick_cpu(*cpu, SCX_KICK_PREEMPT);
	return 0;
}

s32 OPS(gleaner_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct task *t = task_of(p);
	bool idle = false, is_ours = t && t->vm && placement_rule != PLACEMENT_NONE;
	u64 own = is_ours ? burst_now(t->burst, t->computed) : 0, now = bpf_ktime_get_ns();
	s32 cpu;

	RECORD(EVENT_WOKEN, .at = now, .task = p->pid, .other = bpf_get_current_task_btf()->pid,
	       .cpu = bpf_get_smp_processor_id(), .place = prev_cpu, .allowed = allowed_to(p), .idle = idle_pcpus(),
	       .burst = own, .flag = is_ours);
	if (is_ours)
		cpu = place_vcpu(p, t, own, prev_cpu, now, &idle);
	else
		cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);
	/* Nobody waits there, so there is no order to keep. */
	if (idle)
		insert_local(p, fair_slice_ns, 0);
	RECORD(EVENT_PLACED, .task = p->pid, .cpu = cpu, .flag = idle);
	return cpu;
}

void OPS(gleaner_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct task *t = task_of(p);
	struct pcpu *c = pcpu_of(cpu);
	u64 now = bpf_ktime_get_ns(), vtime = entity(p)->dsq_vtime;
	bool idle, woken, urgent;

	/* The kernel's threads of one pCPU are part of the pCPU's own work. There may be no memory for a new task. */
	if (!t || !c || (p->flags & PF_KTHREAD && ((struct task_struct___scx *)p)->nr_cpus_allowed == 1)) {
		RECORD(EVENT_QUEUED, .task = p->pid, .cpu = cpu, .what = QUEUE_LOCAL);
		insert_local(p, fair_slice_ns, enq_flags);
		return;
	}
	RECORD(EVENT_QUEUED, .at = now, .task = p->pid, .cpu = cpu, .value = entity(p)->weight,
	       .allowed = allowed_to(p), .idle = idle_pcpus(),
	       .what = enq_flags & SCX_ENQ_WAKEUP ? QUEUE_WOKEN : QUEUE_FAIR);
	count_on(p, t, cpu);
	t->queued_at = now;
	idle = scx_bpf_test_and_clear_cpu_idle(cpu);
	woken = enq_flags & SCX_ENQ_WAKEUP && !idle;
	if (woken && preempts(p, t, cpu, c, now)) {
		c->preempting = 1;
		RECORD(EVENT_PREEMPTS, .task = p->pid, .cpu = cpu);
		insert_local(p, fair_slice_ns, enq_flags | scx_enum(scx_enq_flags, SCX_ENQ_PREEMPT));
		return;
	}
	urgent = urgency_holds(&t->urgency, now);
	if (urgent)
		c->urgent = 1;
	insert_vtime(p, cpu, fair_slice_ns, vtime, enq_flags);
	/* A pCPU where nobody runs may have found no work here, and become idle after it has looked elsewhere. */
	if (idle)
		kick(cpu, SCX_KICK_IDLE);
	else if (woken && (urgent || !c->runs || comes_before(p, c, now)))
		kick(cpu, SCX_KICK_PREEMPT);
}

void OPS(gleaner_dispatch, s32 cpu, struct task_struct *prev)
{
	struct pcpu *c = pcpu_of(cpu);
	u64 now = bpf_ktime_get_ns();
	enum choice choice;
	struct task *t;

	if (!c)
		return;
	/* The kernel asks only if nobody is next here. */
	c->preempting = 0;
	if (prev && !(entity(prev)->flags & SCX_TASK_QUEUED))
		prev = NULL;
	/* Here, too: one that goes on does not stop. */
	t = prev ? task_of(prev) : NULL;
	if (t)
		account(vm_of(t), t, now);
	c->burst = t ? burst_of(t, now) : 0;
	RECORD(EVENT_ASKS, .at = now, .cpu = cpu, .task = prev ? prev->pid : 0, .burst = c->burst);
	choice = choose(cpu, c, prev, now);
	RECORD(EVENT_CHOSE, .cpu = cpu, .what = choice);
}

/* `from` gives its pCPU away for `to`, unless an answer that it waits for comes soon. Returns whether it does. */
static __always_inline bool yield_to(struct task_struct *from, struct task_struct *to, u64 now)
{
	struct task *sender = task_of(from), *t = task_of(to);

	RECORD(EVENT_YIELDS, .at = now, .task = from->pid, .other = to->pid);
	if (!sender || !t || !t->vm || !urgency_spins(&sender->urgency, rules_of(sender)))
		return false;
	set_slice(from, 0);
	urgent_for(t, rules_of(t)->slice_ns, now);
	count(STAT_YIELDS);
	reconsider(t, NULL);
	return true;
}

/*
 * `from` gives its pCPU away, for nobody, or for a vCPU `to` of its VM that was
 * preempted: KVM asks for that at pause-loop exits, and a Linux guest when it
 * has sent function calls (KVM_HC_SCHED_YIELD). Whom it waits for runs first
 * for an urgent slice, as far as its allowance goes.
 */
bool OPS(gleaner_yield, struct task_struct *from, struct task_struct *to)
{
	bool gives;

	if (!to) {
		set_slice(from, 0);
		return false;
	}
	gives = yield_to(from, to, bpf_ktime_get_ns());
	RECORD(EVENT_YIELDED, .task = from->pid, .flag = gives);
	return gives;
}

/* The weight of the task's control group is its VM's. */
static __always_inline u32 group_weight(struct task_struct *p)
{
	struct cgroup *group;
	u32 weight = 100, *known;

	if (!bpf_ksym_exists(scx_bpf_task_cgroup))
		return weight;
	group = scx_bpf_task_cgroup(p);
	if (!group)
		return weight;
	known = bpf_cgrp_storage_get(&weights, group, 0, 0);
	if (known && *known)
		weight = *known;
	bpf_cgroup_release(group);
	return weight;
}

void OPS(gleaner_runnable, struct task_struct *p, u64 enq_flags)
{
	struct task *t = new_task(p);
	u64 now = bpf_ktime_get_ns();

	RECORD(EVENT_RUNNABLE, .at = now, .task = p->pid, .cpu = scx_bpf_task_cpu(p));
	if (!t)
		return;
	set_active(t, true, now);
	/* Before it is queued, or runs at once on an idle pCPU. */
	catch_up(p, t, pcpu_of(scx_bpf_task_cpu(p)), now);
}

void OPS(gleaner_running, struct task_struct *p)
{
	u32 cpu = scx_bpf_task_cpu(p);
	struct task *t = task_of(p);
	struct pcpu *c = pcpu_of(cpu);
	u64 now = bpf_ktime_get_ns();
	u32 weight = entity(p)->weight;
	struct vm *vm;

	if (!t || !c)
		return;
	/* Here, because a vCPU that computes never sleeps. */
	vm = vm_of(t);
	if (vm) {
		weight = group_weight(p);
		vm->weight = weight;
		average_active(vm, 0, now);
	}
	c->burst = burst_of(t, now);
	RECORD(EVENT_RUNS, .at = now, .task = p->pid, .cpu = cpu, .value = weight, .burst = c->burst);
	count_on(p, t, cpu);
	urgency_runs(&t->urgency, now);
	c->urgent_runs = urgency_holds(&t->urgency, now);
	c->owed = !!t->owes;
	c->runs = 1;
	if (c->preempting)
		has_preempted(t, cpu, c, now);
	t->runs = 1;
	t->ran_from = now;
	t->accounted_until = now;
	t->computes_from = now;
	c->ran_from = now;
	c->slice_from = now;
	c->vtime = entity(p)->dsq_vtime;
	c->weight = weight_in(vm, p);
	/* Not by who runs before the fair order: whoever wakes next would be as far ahead. */
	if (floor_vtime < c->vtime && c->vtime <= first_vtime(cpu, ~0ULL))
		floor_vtime = c->vtime;
}

void OPS(gleaner_stopping, struct task_struct *p, bool runnable)
{
	struct pcpu *c = pcpu_of(scx_bpf_task_cpu(p));
	struct task *t = task_of(p);
	u64 now = bpf_ktime_get_ns();
	struct vm *vm;

	if (!t || !c)
		return;
	RECORD(EVENT_STOPS, .at = now, .task = p->pid);
	c->burst = 0;
	c->runs = 0;
	t->computed = computed(t, now);
	t->runs = 0;
	vm = vm_of(t);
	account(vm, t, now);
	if (now > t->ran_from)
		set_vtime(p, entity(p)->dsq_vtime + virtual_time(now - t->ran_from, weight_in(vm, p)));
}

void OPS(gleaner_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct task *t = task_of(p);
	u64 now = bpf_ktime_get_ns(), own = entity(p)->dsq_vtime, first;

	if (!t)
		return;
	RECORD(EVENT_QUIESCENT, .at = now, .task = p->pid, .flag = !!(deq_flags & SCX_DEQ_SLEEP));
	first = t->counted ? first_vtime(t->counted - 1, ~0ULL) : ~0ULL;
	t->ahead = own > first ? own - first : 0;
	uncount(t);
	set_active(t, false, now);
	if (!(deq_flags & SCX_DEQ_SLEEP))
		return;
	urgency_end(&t->urgency);
	/* A vCPU waited before that, when its guest halted it; what it ran since then was KVM, which polled. */
	if (!t->vm)
		waits(t, now);
	t->computed = 0;
}

/*
 * May sleep, because then there is nearly always memory. Where there is none,
 * an error would end the scheduler, or the thread that is being made: it is
 * tried again when the task is to run.
 */
s32 OPS_SLEEPABLE(gleaner_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	new_task(p);
	return 0;
}

/* Its VM is forgotten with its last vCPU, so that another process of this number is not taken for it. */
void OPS(gleaner_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct task *t = task_of(p);
	struct vm *vm = t ? vm_of(t) : NULL;
	struct address address = {};
	u32 tgid;

	RECORD(EVENT_LEAVES, .task = p->pid);
	if (!vm)
		return;
	address.kvm = t->kvm;
	address.vcpu_id = t->vcpu_id;
	bpf_map_delete_elem(&threads, &address);
	if (__sync_fetch_and_sub(&vm->vcpus, 1) > 1)
		return;
	tgid = t->vm;
	bpf_map_delete_elem(&own_rules, &tgid);
	bpf_map_delete_elem(&own_uses, &tgid);
	bpf_map_delete_elem(&vms, &tgid);
}

void OPS(gleaner_enable, struct task_struct *p)
{
	RECORD(EVENT_ENTERS, .task = p->pid);
	set_vtime(p, floor_vtime);
}

s32 OPS(gleaner_cgroup_init, struct cgroup *group, struct scx_cgroup_init_args *args)
{
	u32 *weight = bpf_cgrp_storage_get(&weights, group, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!weight)
		return -12; /* -ENOMEM */
	*weight = args->weight;
	return 0;
}

void OPS(gleaner_cgroup_set_weight, struct cgroup *group, u32 weight)
{
	u32 *known = bpf_cgrp_storage_get(&weights, group, 0, 0);

	if (known)
		*known = weight;
}

s32 OPS_SLEEPABLE(gleaner_init)
{
	const struct cpumask *online;
	struct pcpu *c;
	int cpu, error;
	u32 key;

	pcpu_count = scx_bpf_nr_cpu_ids();
	if (pcpu_count > MAX_PCPUS)
		return -7; /* -E2BIG */
	online = scx_bpf_get_online_cpumask();
	bpf_for(cpu, 0, pcpu_count) {
		c = pcpu_of(cpu);
		if (c && bpf_cpumask_test_cpu(cpu, online)) {
			c->online = 1;
			online_count++;
		}
	}
	scx_bpf_put_cpumask(online);
	bpf_for(cpu, 0, pcpu_count) {
		error = scx_bpf_create_dsq(cpu, -1);
		if (error)
			return error;
		key = cpu;
		c = bpf_map_lookup_elem(&pcpus, &key);
		if (!c)
			return -22; /* -EINVAL */
		bpf_timer_init(&c->timer, &pcpus, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&c->timer, on_timer);
	}
	return 0;
}

void OPS(gleaner_exit, struct scx_exit_info *info)
{
	bpf_probe_read_kernel_str(ended.reason, sizeof(ended.reason), info->reason);
	bpf_probe_read_kernel_str(ended.message, sizeof(ended.message), info->msg);
	ended.code = info->exit_code;
	/* Last: user space waits for it. */
	__sync_fetch_and_add(&ended.kind, info->kind);
}

SEC(".struct_ops.link")
struct sched_ext_ops gleaner_ops = {
	.select_cpu = (void *)gleaner_select_cpu,
	.enqueue = (void *)gleaner_enqueue,
	.dispatch = (void *)gleaner_dispatch,
	.yield = (void *)gleaner_yield,
	.runnable = (void *)gleaner_runnable,
	.running = (void *)gleaner_running,
	.stopping = (void *)gleaner_stopping,
	.quiescent = (void *)gleaner_quiescent,
	.init_task = (void *)gleaner_init_task,
	.exit_task = (void *)gleaner_exit_task,
	.enable = (void *)gleaner_enable,
	.cgroup_init = (void *)gleaner_cgroup_init,
	.cgroup_set_weight = (void *)gleaner_cgroup_set_weight,
	.init = (void *)gleaner_init,
	.exit = (void *)gleaner_exit,
	.timeout_ms = 10000,
	.name = "gleaner",
};
