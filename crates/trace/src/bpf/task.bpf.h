/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What every program needs to know about a thread: whether it is in the scope,
 * and whether it sleeps.
 */
#ifndef GLEANER_TASK_H
#define GLEANER_TASK_H

#define TASK_RUNNING 0
#define TASK_DEAD 0x80

const volatile enum scope_kind scope_kind = SCOPE_SYSTEM;
/* SCOPE_TREE: this process and its descendants. SCOPE_CHILDREN: only its future descendants. */
const volatile u32 scope_pid = 0;
/* SCOPE_CGROUP: the group's inode number, in this hierarchy. */
const volatile u64 scope_cgroup = 0;
const volatile enum scope_hierarchy scope_hierarchy = HIERARCHY_V2;

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

/* Checked at each event, since a process can be moved at any time. */
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

static __always_inline bool descends(struct task_struct *p)
{
	int depth;

	for (depth = 0; depth < MAX_TREE_DEPTH && p; depth++) {
		if (p->tgid == scope_pid)
			return true;
		if (p->pid <= 1)
			return false;
		p = p->real_parent;
	}
	return false;
}

/*
 * Whether the thread has not started to leave its vCPU: it then goes on as if
 * it had never meant to sleep, and nothing waits. A thread that is leaving, or
 * whose dequeueing is delayed, will be switched to again.
 */
static __always_inline bool never_left(struct task_struct *p)
{
	if (!p->on_cpu || !p->on_rq)
		return false;
	return !(bpf_core_field_exists(p->se.sched_delayed) && p->se.sched_delayed);
}

#endif
