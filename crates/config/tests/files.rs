//! Which files are read, in which order, and what is wrong with files that cannot be.

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

use common::{MAIN, Tree};
use gleaner_config::{Config, Places};
use gleaner_policy::Objective;

/// The `most-workloads` of each file is another one, so that it says which one came last.
fn numbered(tree: &Tree, name: &str, number: u32) {
    tree.write(name, &format!("most-workloads = {number}\nexclude = [{{ unit = \"{number}.service\" }}]\n"));
}

#[test]
fn without_any_file_everything_has_its_default() {
    let tree = Tree::new();
    let loaded = tree.load().unwrap();
    assert_eq!((loaded.config, loaded.files.len(), loaded.warnings.len()), (Config::default(), 0, 0));
}

#[test]
fn later_files_have_the_last_word_and_come_first_in_lists() {
    let tree = Tree::new();
    let in_order = [
        "usr/lib/gleaner/gleaner.toml",
        "usr/lib/gleaner/gleaner.toml.d/10-a.toml",
        "usr/lib/gleaner/gleaner.toml.d/90-z.toml",
        "etc/gleaner/gleaner.toml",
        "etc/gleaner/gleaner.toml.d/05-a.toml",
        "etc/gleaner/gleaner.toml.d/50-m.toml",
    ];
    // In another order than they are read.
    for (i, name) in in_order.iter().enumerate().rev() {
        numbered(&tree, name, u32::try_from(i).unwrap() + 1);
    }
    let loaded = tree.load().unwrap();
    assert_eq!(loaded.files, in_order.map(|name| tree.path(name)));
    assert_eq!(loaded.config.most_workloads, 6);
    let units: Vec<String> = loaded.config.exclude.iter().map(|rule| rule.to_string()).collect();
    let expected = [6, 5, 4, 3, 2, 1].map(|n| format!("{{ unit = \"{n}.service\" }}"));
    assert_eq!(units, expected);
    assert_eq!(loaded.config.exclude[0].at.file.as_ref(), tree.path(in_order[5]));
    let origin = loaded.origins.of("most-workloads").unwrap();
    assert_eq!((origin.file.as_ref(), origin.line), (tree.path(in_order[5]).as_path(), 1));
    assert!(loaded.origins.of("objective").is_none());
}

#[test]
fn a_key_that_a_later_file_does_not_have_stays() {
    let tree = Tree::new();
    tree.write(
        "usr/lib/gleaner/gleaner.toml",
        "objective = \"latency\"\n[metrics]\nlisten = \"[::1]:9839\"\n",
    );
    tree.write(MAIN, "retain = false\n[control]\ngroup = \"sre\"\n");
    let config = tree.load().unwrap().config;
    assert_eq!(
        (config.objective, config.retain, config.control.group.as_str()),
        (Objective::Latency, false, "sre")
    );
    assert_eq!(config.metrics.listen, Some("[::1]:9839".parse().unwrap()));
}

#[test]
fn an_empty_value_takes_back_what_earlier_files_set() {
    let tree = Tree::new();
    tree.write(
        "usr/lib/gleaner/gleaner.toml",
        "exclude = [{ unit = \"a.service\" }]\nquiet-hours = [\"1:00-2:00\"]\n[[workload]]\nunit = \"a.service\"\n[metrics]\n\
         listen = \"127.0.0.1:9839\"\n[burstable]\ncredits = \"echo 1\"\nleast = 5\n",
    );
    tree.write(
        MAIN,
        "exclude = []\nquiet-hours = []\nworkload = []\nmetrics.listen = \"\"\nburstable = { credits = \"\", least = 0 }\n",
    );
    assert_eq!(tree.load().unwrap().config, Config::default());
}

#[test]
fn a_drop_in_masks_one_of_the_same_name_and_disables_it_if_it_is_empty() {
    let tree = Tree::new();
    let drop_in = |dir: &str, name: &str| format!("{dir}/gleaner/gleaner.toml.d/{name}.toml");
    for (name, number) in [("10-masked", 1), ("20-empty", 2), ("30-null", 3), ("40-kept", 4)] {
        numbered(&tree, &drop_in("usr/lib", name), number);
    }
    numbered(&tree, &drop_in("etc", "10-masked"), 11);
    tree.write(&drop_in("etc", "20-empty"), "");
    symlink("/dev/null", tree.path(&drop_in("etc", "30-null"))).unwrap();
    let loaded = tree.load().unwrap();
    assert_eq!(
        loaded.files,
        [drop_in("usr/lib", "40-kept"), drop_in("etc", "10-masked")].map(|name| tree.path(&name))
    );
    assert_eq!(loaded.config.exclude.len(), 2);
}

#[test]
fn other_files_and_what_an_editor_hides_are_none_of_ours() {
    let tree = Tree::new();
    for name in ["a.toml.dpkg-old", "a.toml~", "README", ".a.toml"] {
        tree.write(&format!("etc/gleaner/gleaner.toml.d/{name}"), "nonsense");
    }
    symlink("nowhere", tree.path("etc/gleaner/gleaner.toml.d/.#a.toml")).unwrap();
    assert_eq!(tree.load().unwrap().files.len(), 0);
}

#[test]
fn a_named_directory_or_file_is_read_alone() {
    let tree = Tree::new();
    numbered(&tree, "usr/lib/gleaner/gleaner.toml", 1);
    numbered(&tree, "own/gleaner.toml", 2);
    numbered(&tree, "own/gleaner.toml.d/a.toml", 3);
    let number = |name: &str| Config::load(&Places::named(tree.path(name))).unwrap().config.most_workloads;
    assert_eq!((number("own"), number("own/gleaner.toml"), number("usr/lib/gleaner")), (3, 2, 1));
}

#[test]
fn what_is_named_must_be_there() {
    let tree = Tree::new();
    tree.write("empty/README", "");
    let error =
        |name: &str| tree.hide(&Config::load(&Places::named(tree.path(name))).unwrap_err().to_string());
    insta::assert_snapshot!([error("empty"), error("missing"), error("missing/gleaner.toml")].join("\n"));
}

#[test]
fn a_file_in_place_of_the_directory_is_named() {
    let tree = Tree::new();
    tree.write("etc/gleaner", "");
    insta::assert_snapshot!(tree.hide(&tree.load().unwrap_err().to_string()));
}

#[test]
fn files_that_cannot_be_read_are_all_named() {
    let tree = Tree::new();
    let drop_in = |name: &str| format!("etc/gleaner/gleaner.toml.d/{name}.toml");
    fs::create_dir_all(tree.path(MAIN)).unwrap();
    tree.write("usr/lib/gleaner/gleaner.toml.d", "in place of a directory");
    fs::create_dir_all(tree.path(&drop_in("10-directory"))).unwrap();
    symlink("nowhere", tree.path(&drop_in("20-dangling"))).unwrap();
    symlink("/dev/zero", tree.path(&drop_in("30-device"))).unwrap();
    fs::File::create(tree.path(&drop_in("40-huge"))).unwrap().set_len(100 << 20).unwrap();
    fs::write(tree.path(&drop_in("50-latin")), b"# ok\nobjective = \"\xe4\"\n").unwrap();
    let pipe = Command::new("mkfifo").arg(tree.path(&drop_in("60-pipe"))).status();
    assert!(pipe.unwrap().success());
    tree.write(&drop_in("70-writable"), "retain = false\n");
    fs::set_permissions(tree.path(&drop_in("70-writable")), fs::Permissions::from_mode(0o666)).unwrap();
    symlink("80-loop.toml", tree.path(&drop_in("80-loop"))).unwrap();
    tree.write(&drop_in("90-typo"), "\u{feff}retian = false\n");
    insta::assert_snapshot!(tree.hide(&tree.load().unwrap_err().to_string()));
}
