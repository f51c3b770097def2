//! Recognises code that only waits: on x86, a loop that loads and compares, and changes nothing.
//!
//! Such a loop ends only when another thread writes what it reads, so a program counter inside it is evidence of
//! spinning at user level. Loops with a PAUSE can also count their rounds.

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
    let (mut rest, mut branches, mut reads, mut pauses, mut counts) =
        (body, last != 0xeb, false, false, false);
    // Registers set in this round, and those used with a value from an earlier round.
    let (mut set, mut carried) = (0_u16, 0_u16);
    while !rest.is_empty() {
        let Some(found) = instruction(rest) else { return false };
        match found.kind {
            Kind::Read => reads = true,
            Kind::Branch => branches = true,
            Kind::Pause => pauses = true,
            Kind::Count => counts = true,
            Kind::Compare => {}
        }
        carried |= found.uses & !set;
        set |= found.sets;
        let Some(next) = rest.get(found.length..) else { return false };
        rest = next;
    }
    // If what a loop compares changes from round to round, as in a list traversal, it is working.
    branches && (reads || pauses) && (!counts || pauses) && set & carried == 0
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

/// Registers are bit masks.
struct Instruction {
    length: usize,
    kind: Kind,
    uses: u16,
    sets: u16,
}

impl Instruction {
    fn plain(length: usize, kind: Kind) -> Self {
        Self { length, kind, uses: 0, sets: 0 }
    }
}

/// The first instruction of `code`; `None` for any that a waiting loop has no use for.
fn instruction(code: &[u8]) -> Option<Instruction> {
    if code.starts_with(&[0xf3, 0x90]) {
        return Some(Instruction::plain(2, Kind::Pause));
    }
    // Operand size and REX prefixes change widths and registers only.
    let prefixes = usize::from(code.first() == Some(&0x66));
    let rex = *code.get(prefixes)?;
    let rex = if rex & 0xf0 == 0x40 { rex } else { 0 };
    let at = prefixes + usize::from(rex != 0);
    let opcode = *code.get(at)?;
    let wide = if prefixes > 0 { 2 } else { 4 };
    let rest = code.get(at + 1..)?;
    let field = rest.first().map(|modrm| modrm >> 3 & 7);
    let in_register = rest.first().is_some_and(|modrm| *modrm >= 0xc0);
    let plain = |more: usize, kind| Some(Instruction::plain(at + 1 + more, kind));
    match opcode {
        // MOV to a register.
        0x8a | 0x8b => operand(rest, rex).map(|o| o.into_register(at + 1)),
        // CMP and TEST in their forms.
        0x38..=0x3b | 0x84 | 0x85 => operand(rest, rex).map(|o| o.compared_with_register(at + 1)),
        0x3c | 0xa8 => plain(1, Kind::Compare),
        0x3d | 0xa9 => plain(wide, Kind::Compare),
        0x80 | 0x83 if field == Some(7) => operand(rest, rex).map(|o| o.compared(at + 2)),
        0x81 if field == Some(7) => operand(rest, rex).map(|o| o.compared(at + 1 + wide)),
        0xf6 if field == Some(0) => operand(rest, rex).map(|o| o.compared(at + 2)),
        0xf7 if field == Some(0) => operand(rest, rex).map(|o| o.compared(at + 1 + wide)),
        // Jumps forward.
        0x70..=0x7f if rest.first()?.cast_signed() >= 0 => plain(1, Kind::Branch),
        0x90 => plain(0, Kind::Compare),
        // ADD, SUB, INC and DEC of a register.
        0x83 if in_register && matches!(field, Some(0 | 5)) => plain(2, Kind::Count),
        0xff if in_register && matches!(field, Some(0 | 1)) => plain(1, Kind::Count),
        0x0f => match rest.split_first()? {
            // MOVZX and MOVSX.
            (0xb6 | 0xb7 | 0xbe | 0xbf, rest) => operand(rest, rex).map(|o| o.into_register(at + 2)),
            // NOP with an operand, which it does not read.
            (0x1f, rest) => plain(1 + operand(rest, rex)?.length, Kind::Compare),
            // A conditional jump with a long distance; backward it would close another loop.
            (0x80..=0x8f, rest) if i32::from_le_bytes(*rest.first_chunk()?) >= 0 => plain(5, Kind::Branch),
            _ => None,
        },
        _ => None,
    }
}

/// A ModR/M byte and what belongs to it.
struct Operand {
    length: usize,
    memory: bool,
    /// Registers in the address, or the operand's own register.
    uses: u16,
    /// The other operand, a register.
    register: u16,
}

impl Operand {
    /// Copied into the other operand by an instruction with `before` bytes ahead of this.
    fn into_register(self, before: usize) -> Instruction {
        let register = self.register;
        Instruction { sets: register, ..self.compared(before) }
    }

    fn compared_with_register(self, before: usize) -> Instruction {
        let register = self.register;
        let compared = self.compared(before);
        Instruction { uses: compared.uses | register, ..compared }
    }

    /// Compared with a constant, which is part of the `others` bytes.
    fn compared(self, others: usize) -> Instruction {
        let kind = if self.memory { Kind::Read } else { Kind::Compare };
        Instruction { length: others + self.length, kind, uses: self.uses, sets: 0 }
    }
}

fn operand(code: &[u8], rex: u8) -> Option<Operand> {
    let modrm = *code.first()?;
    // REX.R, REX.X and REX.B are the fourth bits of the register numbers.
    let bit = |number: u8, fourth: u8| 1_u16 << (number & 7 | u8::from(rex & fourth != 0) << 3);
    let (mode, rm, register) = (modrm >> 6, modrm & 7, bit(modrm >> 3, 4));
    if mode == 3 {
        return Some(Operand { length: 1, memory: false, uses: bit(rm, 1), register });
    }
    if rm != 4 {
        let relative = mode == 0 && rm == 5;
        let displacement = [if relative { 4 } else { 0 }, 1, 4][usize::from(mode)];
        let uses = if relative { 0 } else { bit(rm, 1) };
        return Some(Operand { length: 1 + displacement, memory: true, uses, register });
    }
    let sib = *code.get(1)?;
    let no_base = mode == 0 && sib & 7 == 5;
    let displacement = [if no_base { 4 } else { 0 }, 1, 4][usize::from(mode)];
    let base = if no_base { 0 } else { bit(sib, 1) };
    // As an index, register 4 means none.
    let index = bit(sib >> 3, 2);
    let uses = base | if index == 1 << 4 { 0 } else { index };
    Some(Operand { length: 2 + displacement, memory: true, uses, register })
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
