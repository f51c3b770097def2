//! Whether tuned's active profile turns the same knobs as Gleaner. Only files are read; tuned is not asked.
//!
//! A profile is a directory with a `tuned.conf`, which can include other profiles; what the includer says counts more
//! (`tuned/profiles/loader.py`). Its `cpu` plugin holds a latency request for the whole machine (`force_latency`) or for
//! each vCPU (`pm_qos_resume_latency_us`), its `sysfs` plugin can write any file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gleaner_kernel::Root;

/// The names of the active profiles, with spaces between them.
const ACTIVE: &str = "/etc/tuned/active_profile";
/// Where profiles are looked for, in this order: since tuned 2.23 in `profiles`, before that beside it.
const PLACES: [&str; 4] = ["/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned"];
/// The most profiles that are read, however they include each other.
const MOST: usize = 64;

/// A sentence with the remedy if tuned's active profile sets what Gleaner sets, too.
pub(crate) fn warning(root: &Root) -> Option<String> {
    let active = root.read(ACTIVE).ok()?;
    let mut options = Options::default();
    for name in active.split_whitespace() {
        options.load(root, name);
    }
    let (setting, at) = options.conflict()?;
    Some(format!(
        "tuned's active profile `{active}` sets {setting} ({}), which the kernel obeys whatever Gleaner decides: \
         `tuned-adm profile gleaner-guest` leaves idle vCPUs to Gleaner",
        at.display()
    ))
}

/// Key and value, and the file that they are from, by section and key.
#[derive(Debug, Default)]
struct Options {
    known: BTreeMap<(String, String), (String, PathBuf)>,
    read: Vec<PathBuf>,
}

impl Options {
    /// Adds a profile, after those that it includes; one that does not exist or was read already adds nothing.
    fn load(&mut self, root: &Root, name: &str) {
        // A leading dash means that the profile need not exist. Only the last part of a path counts, as for tuned.
        let Some(name) = Path::new(name.trim_start_matches('-')).file_name() else { return };
        let mut files = PLACES.iter().map(|place| Path::new(place).join(name).join("tuned.conf"));
        let Some(file) = files.find(|file| root.exists(file) && !self.read.contains(file)) else { return };
        let Ok(text) = root.read(&file) else { return };
        if self.read.len() == MOST {
            return;
        }
        self.read.push(file.clone());
        let options = parse(&text);
        for (_, _, names) in options.iter().filter(|(section, key, _)| section == "main" && key == "include")
        {
            names.split([',', ';']).for_each(|name| self.load(root, name.trim()));
        }
        for (section, key, value) in options {
            self.known.insert((section, key), (value, file.clone()));
        }
    }

    /// What turns a knob of Gleaner's, and the file that says so.
    fn conflict(&self) -> Option<(String, &Path)> {
        self.known.iter().find_map(|((section, key), (value, file))| {
            let plugin =
                self.known.get(&(section.clone(), "type".to_owned())).map_or(section, |(name, _)| name);
            let turns = match plugin.as_str() {
                // With this value the plugin makes no request.
                "cpu" if value.eq_ignore_ascii_case("none") => false,
                "cpu" => matches!(key.as_str(), "force_latency" | "pm_qos_resume_latency_us"),
                "sysfs" => {
                    key.starts_with("/sys/module/haltpoll/parameters/")
                        || key.ends_with("pm_qos_resume_latency_us")
                }
                _ => false,
            };
            turns.then(|| (format!("{key}={value}"), file.as_path()))
        })
    }
}

/// Section, key and value of each option, in the order of the file.
fn parse(text: &str) -> Vec<(String, String, String)> {
    let mut section = String::new();
    let mut options = Vec::new();
    for line in text.lines() {
        let line = line.split(" #").next().unwrap_or_default().trim();
        if line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name.trim().clone_into(&mut section);
        } else if let Some((key, value)) = line.split_once('=') {
            options.push((section.clone(), key.trim().to_owned(), value.trim().to_owned()));
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A tree in which `active` is active, with profiles as directory and text.
    fn tree(active: &str, profiles: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        fs::create_dir_all(root.path("/etc/tuned")).unwrap();
        fs::write(root.path(ACTIVE), format!("{active}\n")).unwrap();
        for (place, text) in profiles {
            fs::create_dir_all(root.path(place)).unwrap();
            fs::write(root.path(place).join("tuned.conf"), text).unwrap();
        }
        (dir, root)
    }

    const LATENCY: (&str, &str) = (
        "/usr/lib/tuned/latency-performance",
        "#\n[main]\nsummary=s\n\n[cpu]\nforce_latency=cstate.id_no_zero:1|3 # microseconds\ngovernor=performance\n",
    );

    #[test]
    fn a_latency_request_is_found_through_includes() {
        let partitioning = ("/usr/lib/tuned/cpu-partitioning", "[main]\ninclude = -none, network-latency\n");
        let network = ("/usr/lib/tuned/network-latency", "[main]\ninclude=latency-performance\n[vm]\nx=y\n");
        let (_dir, root) = tree("cpu-partitioning", &[LATENCY, network, partitioning]);
        let warning = warning(&root).unwrap();
        for part in [
            "active profile `cpu-partitioning` sets force_latency=cstate.id_no_zero:1|3 (",
            "/usr/lib/tuned/latency-performance/tuned.conf",
            "tuned-adm profile gleaner-guest",
        ] {
            assert!(warning.contains(part), "{warning}");
        }
    }

    #[test]
    fn nothing_to_say_without_tuned_or_a_conflict() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(warning(&Root::at(dir.path())), None, "no tuned");
        let guest = (
            "/usr/lib/tuned/virtual-guest",
            "[main]\ninclude=throughput-performance\n[vm]\ndirty_bytes=30%\n",
        );
        for active in ["virtual-guest", "", "missing", "../../etc", "-"] {
            let (_dir, root) = tree(active, &[LATENCY, guest]);
            assert_eq!(warning(&root), None, "`{active}`");
        }
    }

    #[test]
    fn what_the_includer_says_counts_and_none_is_no_request() {
        let own = ("/etc/tuned/own", "[main]\ninclude=latency-performance\n[cpu]\nforce_latency=None\n");
        let (_dir, root) = tree("own", &[LATENCY, own]);
        assert_eq!(warning(&root), None);
        let (_dir, root) = tree("own latency-performance", &[LATENCY, own]);
        assert_eq!(warning(&root), None, "a profile is read once, as tuned does");
        let packaged = include_str!("../../../packaging/tuned/gleaner-guest/tuned.conf");
        assert!(packaged.contains("\ninclude=virtual-guest\n"));
        let (_dir, root) = tree("gleaner-guest", &[("/usr/lib/tuned/profiles/gleaner-guest", packaged)]);
        assert_eq!(warning(&root), None, "ours");
    }

    #[test]
    fn the_administrators_profile_of_a_name_comes_first() {
        let own = ("/etc/tuned/profiles/latency-performance", "[cpu]\ngovernor=performance\n");
        let (_dir, root) = tree("latency-performance", &[LATENCY, own]);
        assert_eq!(warning(&root), None);
    }

    #[test]
    fn other_ways_to_the_same_knobs_are_found() {
        for (text, setting) in [
            ("[latency]\ntype=cpu\nforce_latency=1\n", "force_latency=1"),
            ("[cpu]\npm_qos_resume_latency_us=n/a\n", "pm_qos_resume_latency_us=n/a"),
            (
                "[sysfs]\n/sys/module/haltpoll/parameters/guest_halt_poll_ns=2400000\n",
                "/sys/module/haltpoll/parameters/guest_halt_poll_ns=2400000",
            ),
            (
                "[sysfs]\n/sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us = 0\n",
                "/sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us=0",
            ),
        ] {
            let (_dir, root) = tree("other", &[("/etc/tuned/other", text)]);
            let warning = warning(&root).unwrap();
            assert!(warning.contains(&format!(" sets {setting} (/etc/tuned/other/tuned.conf)")), "{warning}");
        }
        for text in ["[sysctl]\nforce_latency=1\n", "force_latency=1\n", "[cpu]\n#force_latency=1\n"] {
            let (_dir, root) = tree("other", &[("/etc/tuned/other", text)]);
            assert_eq!(warning(&root), None, "{text}");
        }
    }

    #[test]
    fn profiles_that_include_each_other_end() {
        let a = ("/etc/tuned/a", "[main]\ninclude=b\n[cpu]\nforce_latency=1\n");
        let b = ("/etc/tuned/b", "[main]\ninclude=a,b\n");
        let (_dir, root) = tree("a b a", &[a, b]);
        assert!(warning(&root).is_some());
    }
}
