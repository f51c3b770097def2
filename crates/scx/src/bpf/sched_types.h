/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * sched_ext's types and functions, as far as the scheduler uses them
 * (include/linux/sched/ext.h, kernel/sched/ext.c). CO-RE takes offsets and
 * enumerators from the running kernel. Functions that came or changed after
 * Linux 6.12 are weak, and used through the wrappers below.
 */
#ifndef GLEANER_SCHED_TYPES_H
#define GLEANER_SCHED_TYPES_H

enum scx_exit_kind {
	SCX_EXIT_NONE,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sched_ext_entity {
	u32 flags;
	u32 weight;
	u64 slice;
	u64 dsq_vtime;
};

struct task_struct___scx {
	struct sched_ext_entity scx;
	int nr_cpus_allowed;
	const struct cpumask *cpus_ptr;
	struct pid *thread_pid;
};

struct kvm_vcpu___pid {
	struct pid *pid;
};

struct scx_init_task_args {
	bool fork;
};

struct scx_exit_task_args {
	bool cancelled;
};

struct scx_cgroup_init_args {
	u32 weight;
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	s64 exit_code;
	const char *reason;
	char *msg;
};

struct scx_bpf_dsq_insert_vtime_args {
	u64 dsq_id;
	u64 slice;
	u64 vtime;
	u64 enq_flags;
};

#pragma clang attribute pop

struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	bool (*yield)(struct task_struct *from, struct task_struct *to);
	void (*runnable)(struct task_struct *p, u64 enq_flags);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	void (*quiescent)(struct task_struct *p, u64 deq_flags);
	s32 (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
	void (*exit_task)(struct task_struct *p, struct scx_exit_task_args *args);
	void (*enable)(struct task_struct *p);
	s32 (*cgroup_init)(struct cgroup *cgrp, struct scx_cgroup_init_args *args);
	void (*cgroup_set_weight)(struct cgroup *cgrp, u32 weight);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	u64 flags;
	u32 timeout_ms;
	char name[128];
};

/* Values of the enumerators where they were introduced; see `scx_enum`. */
enum scx_dsq_id_flags {
	SCX_DSQ_LOCAL = 0x8000000000000002ULL,
};

enum scx_enq_flags {
	SCX_ENQ_WAKEUP = 1ULL << 0,
	SCX_ENQ_PREEMPT = 1ULL << 32,
};

enum scx_deq_flags {
	SCX_DEQ_SLEEP = 1ULL << 0,
};

enum scx_kick_flags {
	SCX_KICK_IDLE = 1ULL << 0,
	SCX_KICK_PREEMPT = 1ULL << 1,
};

enum scx_ent_flags {
	SCX_TASK_QUEUED = 1U << 0,
};

#define scx_enum(type, name) bpf_core_enum_value(enum type, name)

struct bpf_iter_scx_dsq {
	u64 __opaque[6];
} __attribute__((aligned(8)));

struct bpf_iter_num {
	u64 __opaque[1];
} __attribute__((aligned(8)));

int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __ksym;
int *bpf_iter_num_next(struct bpf_iter_num *it) __ksym;
void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym;

int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags) __ksym;
struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __ksym;
void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __ksym;

s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym;
s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym;
void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
bool scx_bpf_test_and_clear_cpu_idle(s32 cpu) __ksym;
s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev_cpu, u64 wake_flags, bool *is_idle) __ksym;
u32 scx_bpf_nr_cpu_ids(void) __ksym;
const struct cpumask *scx_bpf_get_online_cpumask(void) __ksym;
void scx_bpf_put_cpumask(const struct cpumask *cpumask) __ksym;
const struct cpumask *scx_bpf_get_idle_cpumask(void) __ksym;
void scx_bpf_put_idle_cpumask(const struct cpumask *cpumask) __ksym;
struct cgroup *scx_bpf_task_cgroup(struct task_struct *p) __ksym __weak;

bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask) __ksym;
struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
void bpf_task_release(struct task_struct *p) __ksym;
void bpf_cgroup_release(struct cgroup *cgrp) __ksym;

/* Since Linux 6.19 the arguments are in a struct. */
bool __scx_bpf_dsq_insert_vtime(struct task_struct *p, struct scx_bpf_dsq_insert_vtime_args *args) __ksym __weak;
void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime, u64 enq_flags) __ksym __weak;
/* Since Linux 6.19 it returns whether it did. */
bool scx_bpf_dsq_insert___v2___compat(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym __weak;
void scx_bpf_dsq_insert___v1(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym __weak;
/* Since Linux 7.1 it has flags. */
bool scx_bpf_dsq_move_to_local___v2___compat(u64 dsq_id, u64 enq_flags) __ksym __weak;
bool scx_bpf_dsq_move_to_local___v1(u64 dsq_id) __ksym __weak;
void scx_bpf_dsq_move_set_slice(struct bpf_iter_scx_dsq *it, u64 slice) __ksym __weak;
bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id, u64 enq_flags) __ksym __weak;
/* Since Linux 6.19; before, the fields are written. */
bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice) __ksym __weak;
bool scx_bpf_task_set_dsq_vtime(struct task_struct *p, u64 vtime) __ksym __weak;

static __always_inline struct sched_ext_entity *entity(struct task_struct *p)
{
	return &((struct task_struct___scx *)p)->scx;
}

static __always_inline void insert_vtime(struct task_struct *p, u64 dsq, u64 slice, u64 vtime, u64 flags)
{
	if (bpf_core_type_exists(struct scx_bpf_dsq_insert_vtime_args)) {
		struct scx_bpf_dsq_insert_vtime_args args = {
			.dsq_id = dsq,
			.slice = slice,
			.vtime = vtime,
			.enq_flags = flags,
		};

		__scx_bpf_dsq_insert_vtime(p, &args);
	} else {
		scx_bpf_dsq_insert_vtime(p, dsq, slice, vtime, flags);
	}
}

static __always_inline void insert_local(struct task_struct *p, u64 slice, u64 flags)
{
	u64 local = scx_enum(scx_dsq_id_flags, SCX_DSQ_LOCAL);

	if (bpf_ksym_exists(scx_bpf_dsq_insert___v2___compat))
		scx_bpf_dsq_insert___v2___compat(p, local, slice, flags);
	else
		scx_bpf_dsq_insert___v1(p, local, slice, flags);
}

static __always_inline bool move_to_local(u64 dsq)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local___v2___compat))
		return scx_bpf_dsq_move_to_local___v2___compat(dsq, 0);
	return scx_bpf_dsq_move_to_local___v1(dsq);
}

static __always_inline void set_slice(struct task_struct *p, u64 slice)
{
	if (bpf_ksym_exists(scx_bpf_task_set_slice))
		scx_bpf_task_set_slice(p, slice);
	else
		entity(p)->slice = slice;
}

static __always_inline void set_vtime(struct task_struct *p, u64 vtime)
{
	if (bpf_ksym_exists(scx_bpf_task_set_dsq_vtime))
		scx_bpf_task_set_dsq_vtime(p, vtime);
	else
		entity(p)->dsq_vtime = vtime;
}

#define OPS(name, args...) \
	SEC("struct_ops/" #name) \
	BPF_PROG(name, ##args)

#define OPS_SLEEPABLE(name, args...) \
	SEC("struct_ops.s/" #name) \
	BPF_PROG(name, ##args)

#endif
