//! Compiles the BPF programs.

mod compile_bpf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    compile_bpf::compile(&["trace", "overload", "record", "waiting", "sockets", "switches", "wakers"], &[])
}
