/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * KVM's types, as far as the programs read them. CO-RE takes the offsets from
 * the running kernel and its modules, so neither order nor size matters here.
 */
#ifndef GLEANER_KVM_TYPES_H
#define GLEANER_KVM_TYPES_H

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kvm;

struct kvm_vcpu_stat_generic {
	u64 halt_poll_success_ns;
	u64 halt_poll_fail_ns;
};

struct kvm_vcpu_stat {
	struct kvm_vcpu_stat_generic generic;
};

struct kvm_vcpu_arch {
	/* By number: RAX is 0, RCX 1. */
	unsigned long regs[17];
	u64 msr_kvm_poll_control;
	int mp_state;
};

struct kvm_vcpu {
	struct kvm *kvm;
	int vcpu_id;
	unsigned int halt_poll_ns;
	struct kvm_vcpu_arch arch;
	struct kvm_vcpu_stat stat;
};

struct task_struct___started {
	u64 start_time;
};

/* AMD: arch/x86/kvm/svm/svm.h */
struct vmcb_control_area {
	u32 exit_code;
	u64 exit_info_1;
	u64 exit_info_2;
};

struct vmcb {
	struct vmcb_control_area control;
};

struct vcpu_svm {
	struct kvm_vcpu vcpu;
	struct vmcb *vmcb;
};

/* Intel: arch/x86/kvm/vmx/vmx.h; in struct vcpu_vt since Linux 6.16. */
union vmx_exit_reason {
	u32 full;
};

struct vcpu_vt {
	union vmx_exit_reason exit_reason;
};

struct vcpu_vmx {
	struct kvm_vcpu vcpu;
	struct vcpu_vt vt;
};

struct vcpu_vmx___before_vt {
	union vmx_exit_reason exit_reason;
};

#pragma clang attribute pop

/* arch/x86/kvm/trace.h */
#define KVM_ISA_VMX 1
#define KVM_ISA_SVM 2

#define VCPU_REGS_RCX 1

/* include/uapi/linux/kvm.h */
#define KVM_MP_STATE_HALTED 3

/* arch/x86/include/asm/msr-index.h and apicdef.h */
#define MSR_IA32_TSC_DEADLINE 0x6e0
#define APIC_BASE_MSR 0x800
#define APIC_LAST_MSR 0x8ff
#define APIC_DEFAULT_PHYS_BASE 0xfee00000ULL
#define APIC_EOI 0xb0
#define APIC_ICR 0x300
#define APIC_LVTT 0x320
#define APIC_TMICT 0x380

/* arch/x86/include/asm/irq_vectors.h: how Linux guests use their vectors. */
#define FIRST_EXTERNAL_VECTOR 0x20
#define LOCAL_TIMER_VECTOR 0xec
#define CALL_FUNCTION_SINGLE_VECTOR 0xfb
#define CALL_FUNCTION_VECTOR 0xfc
#define RESCHEDULE_VECTOR 0xfd
/* Interrupts of devices have vectors below this. */
#define FIRST_SYSTEM_VECTOR LOCAL_TIMER_VECTOR

/* include/uapi/linux/kvm_para.h */
#define KVM_HC_KICK_CPU 5
#define KVM_HC_SEND_IPI 10
#define KVM_HC_SCHED_YIELD 11

#endif
