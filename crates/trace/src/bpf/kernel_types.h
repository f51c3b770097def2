/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel types and fields that the programs use. When a program is loaded,
 * CO-RE takes each field's offset from the running kernel's BTF, so neither
 * order nor size matters here.
 */
#ifndef GLEANER_KERNEL_TYPES_H
#define GLEANER_KERNEL_TYPES_H

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef signed short __s16;
typedef unsigned int __u32;
typedef signed int __s32;
typedef unsigned long long __u64;
typedef signed long long __s64;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;
typedef __s64 s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;

enum { false, true };

/* include/uapi/linux/bpf.h */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
};

enum {
	BPF_F_NO_PREALLOC = 1U << 0,
};

enum {
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1U << 0,
};

enum {
	BPF_F_TIMER_CPU_PIN = 1ULL << 1,
};

/* include/linux/sched.h: of `task_struct.flags`. */
enum {
	PF_KTHREAD = 0x00200000,
};

enum {
	BPF_RB_NO_WAKEUP = 1ULL << 0,
};

struct bpf_timer {
	__u64 opaque[2];
} __attribute__((aligned(8)));

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long si;
	unsigned long orig_ax;
	unsigned long ip;
};
#elif defined(__TARGET_ARCH_arm64)
struct user_pt_regs {
	u64 regs[31];
};

struct pt_regs {
	struct user_pt_regs user_regs;
	s32 syscallno;
};
#endif

struct kernfs_node {
	u64 id;
};

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};

enum cgroup_subsys_id {
	cpuset_cgrp_id,
	cpu_cgrp_id,
	cpuacct_cgrp_id,
};

struct css_set {
	struct cgroup_subsys_state *subsys[16];
	struct cgroup *dfl_cgrp;
};

struct thread_info {
	u32 cpu;
};

struct sched_entity {
	unsigned char sched_delayed;
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	unsigned int flags;
	/*
	 * Unsigned, so that CO-RE adapts loads to their size: bytes since Linux
	 * 7.3 at the latest.
	 */
	unsigned int on_cpu;
	unsigned int on_rq;
	struct sched_entity se;
	int static_prio;
	unsigned int policy;
	unsigned in_iowait : 1;
	int pid;
	int tgid;
	struct task_struct *real_parent;
	struct css_set *cgroups;
	char comm[16];
};

struct cpumask {
	unsigned long bits[128];
};

struct __call_single_node {
	unsigned int u_flags;
};

struct __call_single_data {
	struct __call_single_node node;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

#endif
