// SPDX-License-Identifier: GPL-2.0-only
/*
 * Attributes the time of vCPUs: to the guest, to the hypervisor by exit reason,
 * to waiting for a pCPU, to being halted. Nothing is sent to user space per
 * event; user space reads the vCPUs' counters.
 */
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "kvm_types.h"
#include "host.h"
#include "hist.bpf.h"
#include "machine.bpf.h"
#include "vcpus.bpf.h"
#include "exits.bpf.h"
#include "interrupts.bpf.h"
#include "switches.bpf.h"

char LICENSE[] SEC("license") = "GPL";
