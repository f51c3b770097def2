//! What earlier runs showed of a program. A file that cannot be used is set aside.

#![no_main]

use gleaner_engine::MemoryDir;
use gleaner_fuzz::scratch;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let dir = scratch("memory");
    std::fs::create_dir_all(&dir).expect("a directory");
    std::fs::write(dir.join("p-program-00000000.json"), bytes).expect("a file");
    let memory = MemoryDir::at(&dir);
    let (known, errors) = memory.list().expect("the directory can be read");
    assert_eq!(known.len() + errors.len(), 1);
    for known in known {
        let name = known.file_name();
        assert!(!name.contains('/') && name.len() < 100, "{name}");
        let _ = memory.load(&known);
    }
    memory.forget_all().expect("files can be removed");
});
