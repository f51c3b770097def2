//! The folder in any state: missing, damaged, full, another user's.

use std::time::Duration;

use gleaner_policy::{Evidence, KnownLoad, KnownRetention, Method, Retention, Signal};
use gleaner_proto::memory::{LoadMemory, MachineIdentity};

use super::*;

fn machine() -> MachineIdentity {
    let (id, kernel) = ("m".to_owned(), "6.18.44".to_owned());
    MachineIdentity { id, kernel, vcpus: 2, method: Method::Haltpoll, poll_price: 0.125 }
}

fn memory(program: &str) -> ProgramMemory {
    let evidence = Evidence { signal: Signal::Moved, ratio: 3.5, low: 3.4, high: 3.6, pairs: 2 };
    let setting = Retention { method: Method::Haltpoll, limit: Duration::from_micros(187) };
    let retention = Some(KnownRetention { setting, evidence });
    let known = KnownLoad { load: 0.4, retention, vcpus: None, refuted: 0, refuted_vcpus: 0 };
    let loads = vec![LoadMemory { known, proven_unix_ms: Some(17), refuted_unix_ms: None }];
    ProgramMemory { runs: 1, used_unix_ms: 17, loads, ..ProgramMemory::new(program.to_owned(), machine()) }
}

fn folder() -> (tempfile::TempDir, MemoryDir) {
    let dir = tempfile::tempdir().unwrap();
    let memory = MemoryDir::at(dir.path().join("state/gleaner/memory"));
    (dir, memory)
}

#[test]
fn what_was_saved_is_known_again_and_nobody_else_can_read_or_write_it() {
    let (_dir, place) = folder();
    let redis = memory("/usr/bin/redis-server");
    assert_eq!(place.load(&redis).unwrap(), None);
    assert!(!place.path().exists(), "reading makes nothing");
    place.save(&redis).unwrap();
    let again = ProgramMemory { runs: 2, ..redis.clone() };
    place.save(&again).unwrap();
    assert_eq!(place.load(&redis).unwrap(), Some(again.clone()));
    assert_eq!(place.list().unwrap().0, [again]);
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    let file = place.path().join(redis.file_name());
    assert_eq!((mode(place.path()), mode(&file)), (0o700, 0o600));
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("\"program\": \"/usr/bin/redis-server\"") && text.contains("\"ratio\": 3.5"),
        "{text}"
    );
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn on_another_machine_kernel_or_set_of_vcpus_or_by_another_price_nothing_is_known() {
    let (_dir, place) = folder();
    let redis = memory("/usr/bin/redis-server");
    place.save(&redis).unwrap();
    for other in [
        MachineIdentity { id: "n".into(), ..machine() },
        MachineIdentity { kernel: "6.19".into(), ..machine() },
        MachineIdentity { vcpus: 4, ..machine() },
        MachineIdentity { method: Method::YieldIpiFree, ..machine() },
        MachineIdentity { poll_price: 0.5, ..machine() },
    ] {
        let there = ProgramMemory::new(redis.program.clone(), other);
        assert_eq!(place.load(&there).unwrap(), None);
        // Not even if its file has that name.
        fs::copy(place.path().join(redis.file_name()), place.path().join(there.file_name())).unwrap();
        assert_eq!(place.load(&there).unwrap(), None);
    }
}

#[test]
fn what_cannot_be_used_is_set_aside_once_and_learned_anew() {
    let whole = serde_json::to_string(&memory("/bin/x")).unwrap();
    let half = &whole[..whole.len() / 2];
    let newer = whole.replacen("\"version\":2", "\"version\":3", 1);
    let negative = whole.replacen("\"runs\":1", "\"runs\":-1", 1);
    let infinite = whole.replacen("\"load\":0.4", "\"load\":1e999", 1);
    let cases = [
        ("", "is damaged"),
        ("\0\0\0", "is damaged"),
        ("[]", "is damaged"),
        (half, "is damaged"),
        (&newer, "is of version 3, and this program reads version 2"),
        (&negative, "is damaged"),
        (&infinite, "is damaged"),
    ];
    for (text, reason) in cases {
        let (_dir, place) = folder();
        let asked = memory("/bin/x");
        place.save(&asked).unwrap();
        let file = place.path().join(asked.file_name());
        fs::write(&file, text).unwrap();
        let error = place.load(&asked).unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains("set aside as"), "{error}");
        assert_eq!(fs::read_to_string(file.with_extension(UNUSABLE_SUFFIX)).unwrap(), text);
        assert_eq!(place.load(&asked).unwrap(), None, "said once");
        place.save(&asked).unwrap();
        assert_eq!(place.load(&asked).unwrap(), Some(asked));
    }
}

#[test]
fn the_list_names_what_it_cannot_read_and_has_the_rest() {
    let (_dir, place) = folder();
    let late = ProgramMemory { used_unix_ms: 20, ..memory("/bin/late") };
    for memory in [memory("/bin/damaged"), memory("/bin/early"), late] {
        place.save(&memory).unwrap();
    }
    fs::write(place.path().join(memory("/bin/damaged").file_name()), "x").unwrap();
    let (known, errors) = place.list().unwrap();
    let programs: Vec<_> = known.iter().map(|memory| memory.program.as_str()).collect();
    assert_eq!(programs, ["/bin/late", "/bin/early"]);
    assert!(matches!(errors[..], [MemoryError::SetAside { .. }]), "{errors:?}");
}

#[test]
fn the_program_that_was_not_used_for_longest_goes_first() {
    let (_dir, place) = folder();
    let name = |i: usize| memory(&format!("/bin/p{i}"));
    for i in 0..MAX_FILES {
        place.save(&name(i)).unwrap();
        let file = File::open(place.path().join(name(i).file_name())).unwrap();
        // Ordered by time differently than by name; the second is the most recently used.
        let seconds = if i == 1 { 10_000 } else { 1000 - i as u64 };
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    }
    for new in [MAX_FILES, MAX_FILES + 1] {
        place.save(&name(new)).unwrap();
    }
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), MAX_FILES);
    let gone: Vec<_> = (0..MAX_FILES + 2).filter(|i| place.load(&name(*i)).unwrap().is_none()).collect();
    assert_eq!(gone, [MAX_FILES - 2, MAX_FILES - 1]);
}

#[test]
fn programs_are_forgotten_alone_or_all_together_and_other_files_stay() {
    let (_dir, place) = folder();
    place.forget_all().unwrap();
    for program in ["/bin/a", "/bin/b", "/bin/c"] {
        place.save(&memory(program)).unwrap();
    }
    place.forget(&memory("/bin/a")).unwrap();
    place.forget(&memory("/bin/a")).unwrap();
    assert_eq!(place.list().unwrap().0.len(), 2);
    fs::write(place.path().join(memory("/bin/b").file_name()), "x").unwrap();
    place.list().unwrap();
    fs::write(place.path().join("theirs.json.txt"), "theirs").unwrap();
    place.forget_all().unwrap();
    let left: Vec<_> = fs::read_dir(place.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["theirs.json.txt"]);
}

#[test]
fn a_folder_that_cannot_be_made_or_belongs_to_somebody_else_is_an_error_that_names_it() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let beneath = MemoryDir::at(file.path().join("memory"));
    let errors = [
        beneath.save(&memory("/bin/x")).unwrap_err(),
        MemoryDir::at("/proc/gleaner").save(&memory("/bin/x")).unwrap_err(),
        beneath.load(&memory("/bin/x")).unwrap_err(),
    ];
    for (error, path) in errors.iter().zip([file.path(), Path::new("/proc/gleaner"), file.path()]) {
        let text = error.to_string();
        assert!(text.starts_with("cannot use ") && text.contains(&*path.to_string_lossy()), "{text}");
    }
    if nix::unistd::geteuid().is_root() {
        let (_dir, place) = folder();
        place.save(&memory("/bin/x")).unwrap();
        std::os::unix::fs::chown(place.path(), Some(65534), None).unwrap();
        let error = place.load(&memory("/bin/x")).unwrap_err().to_string();
        assert!(error.contains("belongs to user 65534"), "{error}");
        assert!(
            place.save(&memory("/bin/x")).is_err() && place.list().is_err() && place.forget_all().is_err()
        );
    }
}

#[test]
fn the_folder_is_roots_or_the_users_or_the_one_that_is_named() {
    let cases = [
        (true, "HOME=/home/u", Some("/fake/var/lib/gleaner/memory")),
        (true, "HOME=/home/u GLEANER_MEMORY=here/memory", Some("here/memory")),
        (true, "HOME=/home/u GLEANER_MEMORY=", None),
        (false, "HOME=/home/u", Some("/home/u/.local/state/gleaner/memory")),
        (false, "HOME=/home/u XDG_STATE_HOME=state", Some("/home/u/.local/state/gleaner/memory")),
        (false, "HOME=/home/u XDG_STATE_HOME=/s", Some("/s/gleaner/memory")),
        (false, "HOME=/home/u GLEANER_MEMORY=", None),
        (false, "", None),
    ];
    for (is_root, environment, expected) in cases {
        let set = |name: &str| {
            let mut words = environment.split_whitespace().filter_map(|word| word.split_once('='));
            words.find(|(n, _)| *n == name).map(|(_, value)| PathBuf::from(value))
        };
        assert_eq!(place(&Root::at("/fake"), is_root, set), expected.map(PathBuf::from), "{environment}");
    }
}
