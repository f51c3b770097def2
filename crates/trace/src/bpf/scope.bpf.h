/* SPDX-License-Identifier: GPL-2.0-only */
/* Whose threads are watched. */
#ifndef GLEANER_SCOPE_H
#define GLEANER_SCOPE_H

const volatile u32 scope_kind = SCOPE_SYSTEM;
/* SCOPE_TREE: this process and what descends from it. SCOPE_CHILDREN: what it starts from now on, without itself. */
const volatile u32 scope_pid = 0;
/* SCOPE_CGROUP: a group's inode number, in this hierarchy. */
const volatile u64 scope_cgroup = 0;
const volatile u32 scope_hierarchy = HIERARCHY_V2;

#define MAX_CGROUP_DEPTH 8
#define MAX_TREE_DEPTH 32

static __always_inline struct cgroup *group_of(struct task_struct *p)
{
	struct css_set *sets = p->cgroups;

	if (scope_hierarchy == HIERARCHY_CPUSET)
		return sets->subsys[bpf_core_enum_value(enum cgroup_subsys_id, cpuset_cgrp_id)]->cgroup;
	if (scope_hierarchy == HIERARCHY_CPU)
		return sets->subsys[bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id)]->cgroup;
	if (scope_hierarchy == HIERARCHY_CPUACCT)
		return sets->subsys[bpf_core_enum_value(enum cgroup_subsys_id, cpuacct_cgrp_id)]->cgroup;
	return sets->dfl_cgrp;
}

/* A process can be moved at any time, so this is asked anew at each event. */
static __always_inline bool in_group(struct task_struct *p)
{
	struct cgroup *group = group_of(p);
	struct cgroup_subsys_state *parent;
	int depth;

	for (depth = 0; depth < MAX_CGROUP_DEPTH; depth++) {
		if (group->kn->id == scope_cgroup)
			return true;
		parent = group->self.parent;
		if (!parent)
			return false;
		group = parent->cgroup;
	}
	return false;
}

static __always_inline bool in_scope(struct task_struct *p, struct task_state *t)
{
	if (scope_kind == SCOPE_SYSTEM)
		return true;
	if (scope_kind == SCOPE_CGROUP)
		return in_group(p);
	return t && t->member;
}

/* For events that the running thread causes; n of them at once. */
static __always_inline void count(u32 what, u64 n)
{
	struct task_struct *p;
	struct counts *counts;
	u32 weight = weight_of_this();

	if (!weight)
		return;
	counts = these_counts();
	if (!counts)
		return;
	counts->all[what] += n * weight;
	p = bpf_get_current_task_btf();
	if (in_scope(p, scope_kind == SCOPE_SYSTEM ? NULL : state_of(p)))
		counts->scope[what] += n * weight;
}

/* For events that come from outside, whatever thread they find. */
static __always_inline void count_received(u32 what)
{
	u32 weight = weight_of_this();

	if (weight)
		count_all(what, weight);
}

#endif
