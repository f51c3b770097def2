//! Recognises code that only waits: on x86, a loop that loads and compares, and changes nothing.
//!
//! Such a loop ends only when another thread writes what it reads, so a program counter inside it is evidence of
//! spinning at user level. Loops with a PAUSE can also count their rounds.

use std::collections::BTreeSet;

use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfo, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, UsedRegister,
};

/// The mode of the code's processor.
const BITS: u32 = 64;
/// How far after the program counter to search for the end of the loop.
const SEARCH_BYTES: usize = 24;

/// Whether `code[at]` lies in such a loop.
pub(crate) fn waits_at(code: &[u8], at: usize) -> bool {
    (at..(at + SEARCH_BYTES).min(code.len().saturating_sub(1))).any(|jump| {
        // A short backward jump, conditional or not, within the code that is known.
        let (opcode, distance) = (code[jump], code[jump + 1].cast_signed());
        if !(matches!(opcode, 0x70..=0x7f | 0xeb) && distance < 0) {
            return false;
        }
        let start = (jump + 2).checked_add_signed(isize::from(distance));
        start.is_some_and(|start| start <= at && only_waits(&code[start..jump], opcode))
    })
}

/// Whether the instructions of `body` load, compare and jump, up to the jump `last` that closes the loop, and carry
/// nothing over to the next round, except for a count beside a PAUSE.
fn only_waits(body: &[u8], last: u8) -> bool {
    let (mut branches, mut reads, mut pauses, mut counts) = (last != 0xeb, false, false, false);
    // Registers set in this round, and those used with a value from an earlier round.
    let (mut set, mut carried) = (BTreeSet::new(), BTreeSet::new());
    let mut factory = InstructionInfoFactory::new();
    for instruction in Decoder::new(BITS, body, DecoderOptions::NONE) {
        let info = factory.info(&instruction);
        let Some(kind) = kind(&instruction, info) else { return false };
        match kind {
            Kind::Read => reads = true,
            Kind::Branch => branches = true,
            Kind::Pause => pauses = true,
            Kind::Count => counts = true,
            Kind::Compare => {}
        }
        if kind == Kind::Count {
            continue;
        }
        let registers = info.used_registers().iter().filter(|used| used.register().is_gpr());
        let (sets, uses): (Vec<_>, Vec<_>) = registers.partition(|used| writes(used.access()));
        let full = |used: &UsedRegister| used.register().full_register();
        carried.extend(uses.into_iter().map(full).filter(|register| !set.contains(register)));
        set.extend(sets.into_iter().map(full));
    }
    // If what a loop compares changes from round to round, as in a list traversal, it is working.
    branches && (reads || pauses) && (!counts || pauses) && set.is_disjoint(&carried)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Reads memory, perhaps into a register.
    Read,
    /// Compares or copies registers, or does nothing.
    Compare,
    /// Jumps forward, out of the loop.
    Branch,
    /// PAUSE.
    Pause,
    /// Adds to or subtracts from a register: a counting loop is only known to wait if it also pauses.
    Count,
}

/// What the instruction does for a waiting loop; `None` for any that such a loop has no use for.
fn kind(instruction: &Instruction, info: &InstructionInfo) -> Option<Kind> {
    if info.used_memory().iter().any(|memory| writes(memory.access())) {
        return None;
    }
    let first = instruction.op0_kind();
    match instruction.mnemonic() {
        Mnemonic::Pause => Some(Kind::Pause),
        Mnemonic::Nop => Some(Kind::Compare),
        Mnemonic::Mov
        | Mnemonic::Movzx
        | Mnemonic::Movsx
        | Mnemonic::Movsxd
        | Mnemonic::Cmp
        | Mnemonic::Test => Some(if info.used_memory().is_empty() { Kind::Compare } else { Kind::Read }),
        Mnemonic::Add | Mnemonic::Sub | Mnemonic::Inc | Mnemonic::Dec
            if first == OpKind::Register && instruction.op1_kind() != OpKind::Memory =>
        {
            Some(Kind::Count)
        }
        _ => {
            let forward = instruction.near_branch_target() >= instruction.next_ip();
            (instruction.is_jcc_short_or_near() && forward).then_some(Kind::Branch)
        }
    }
}

fn writes(access: OpAccess) -> bool {
    use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
    matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether each byte of the code, with other instructions around it, lies in a loop that waits.
    fn waits(loop_code: &[u8]) -> bool {
        let mut code = vec![0x48, 0x01, 0xd8, 0xc3, 0x50];
        let start = code.len();
        code.extend(loop_code);
        code.extend([0x5d, 0xc3, 0x31, 0xc0]);
        waits_at(&code, start)
    }

    #[test]
    fn loops_that_read_and_compare_wait() {
        // mov rax,[rdi]; test rax,rax; jne
        assert!(waits(&[0x48, 0x8b, 0x07, 0x48, 0x85, 0xc0, 0x75, 0xf8]));
        // cmp qword [rdi+8],0; jne
        assert!(waits(&[0x48, 0x83, 0x7f, 0x08, 0x00, 0x75, 0xf9]));
        // movzx eax, byte [rdi+rcx*1+0x10]; test al,al; je
        assert!(waits(&[0x0f, 0xb6, 0x44, 0x0f, 0x10, 0x84, 0xc0, 0x74, 0xf7]));
        // mov eax,[rip+0x100]; test eax,eax; jne
        assert!(waits(&[0x8b, 0x05, 0x00, 0x01, 0x00, 0x00, 0x85, 0xc0, 0x75, 0xf6]));
        // mov rax,[rdi]; cmp dword [rax+4],0; jne: through a pointer
        assert!(waits(&[0x48, 0x8b, 0x07, 0x83, 0x78, 0x04, 0x00, 0x75, 0xf7]));
        // mov rax,[rdi]; test rax,rax; je out; jmp
        assert!(waits(&[0x48, 0x8b, 0x07, 0x48, 0x85, 0xc0, 0x74, 0x02, 0xeb, 0xf6]));
    }

    #[test]
    fn a_pause_allows_a_count_of_rounds() {
        // pause; cmp dword [rdi],0; jne
        assert!(waits(&[0xf3, 0x90, 0x83, 0x3f, 0x00, 0x75, 0xf9]));
        // pause; dec ecx; jne
        assert!(waits(&[0xf3, 0x90, 0xff, 0xc9, 0x75, 0xfa]));
        // Without a pause the same loop is no more than a delay.
        assert!(!waits(&[0xff, 0xc9, 0x75, 0xfc]));
    }

    #[test]
    fn loops_that_do_something_do_not_wait() {
        // mov byte [rdi+rax],0; add rax,rcx; cmp rax,rdx; jb: a sieve
        assert!(!waits(&[0xc6, 0x04, 0x07, 0x00, 0x48, 0x01, 0xc8, 0x48, 0x39, 0xd0, 0x72, 0xf4]));
        // add rax,[rdi]; add rdi,8; cmp rdi,rsi; jne: a sum
        assert!(!waits(&[0x48, 0x03, 0x07, 0x48, 0x83, 0xc7, 0x08, 0x48, 0x39, 0xf7, 0x75, 0xf4]));
        // cmp byte [rdi+rax],0; lea rax,[rax+1]; jne: strlen
        assert!(!waits(&[0x80, 0x3c, 0x07, 0x00, 0x48, 0x8d, 0x40, 0x01, 0x75, 0xf6]));
        // mov rax,[rax]; test rax,rax; jne: the end of a list
        assert!(!waits(&[0x48, 0x8b, 0x00, 0x48, 0x85, 0xc0, 0x75, 0xf8]));
        // mov r8,[rax]; mov rax,[r8]; test rax,rax; jne: the same in two steps
        assert!(!waits(&[0x4c, 0x8b, 0x00, 0x49, 0x8b, 0x00, 0x48, 0x85, 0xc0, 0x75, 0xf5]));
        // Not a loop.
        assert!(!waits(&[0x48, 0x8b, 0x07, 0x48, 0x85, 0xc0, 0xc3]));
    }

    #[test]
    fn what_is_truncated_is_nothing() {
        for length in 0..8 {
            let code = &[0x48, 0x8b, 0x07, 0x48, 0x85, 0xc0, 0x75, 0xf8][..length];
            assert!(!waits_at(code, 0), "{length}");
        }
        assert!(!waits_at(&[], 3));
    }
}
