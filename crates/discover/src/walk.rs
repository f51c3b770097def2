//! Walks a hierarchy again and again: which groups are workloads, and which only share their processes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_kernel::Root;

use crate::Kind;
use crate::hierarchy::{Hierarchy, children};
use crate::label::{Label, Place, classify};

/// The groups of a hierarchy at one time.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) workloads: Vec<(PathBuf, Label)>,
    /// Groups that are no workload of their own, with what can be in them.
    pub(crate) shared: Vec<PathBuf>,
}

/// The groups that were seen so far. Only the directories that hold groups are looked at, and they are listed again only
/// where the number of their child groups changed or one of these vanished.
#[derive(Debug)]
pub(crate) struct Walk {
    top: Node,
    /// How many groups are followed.
    followed: usize,
    is_first: bool,
    /// Groups that are looked into at once if they come back, the latest last.
    expected: VecDeque<PathBuf>,
}

#[derive(Debug)]
struct Node {
    place: Place,
    /// When it was first listed; `None`: before anything else, so that its age is not known but long.
    listed_at: Option<Duration>,
    /// The number of links to the directory when it was listed: two more than it has child groups.
    links: Option<u64>,
    children: BTreeMap<OsString, Node>,
}

impl Walk {
    /// A younger group is not looked into: those of a machine that starts twenty a second live for a moment.
    const GROWN_UP: Duration = Duration::from_secs(1);
    /// Groups beyond these are not followed: users can make any number.
    const MOST_GROUPS: usize = 8192;
    /// Nor those that are nested deeper.
    const DEEPEST: usize = 24;
    /// At most so many groups are expected to come back.
    const MOST_EXPECTED: usize = 64;

    pub(crate) fn new() -> Self {
        Self { top: Node::new(Place::Inner, None), followed: 0, is_first: true, expected: VecDeque::new() }
    }

    /// What there is at `now`. What vanishes meanwhile is left out.
    pub(crate) fn take(&mut self, root: &Root, hierarchy: &Hierarchy, now: Duration) -> Found {
        let mut found = Found::default();
        let mut step = Step {
            root,
            hierarchy,
            now,
            listed_at: (!self.is_first).then_some(now),
            left: Self::MOST_GROUPS.saturating_sub(self.followed),
            expected: &self.expected,
            found: &mut found,
        };
        self.top.visit(Path::new("/"), 0, &mut step);
        self.followed = self.top.count();
        self.is_first = false;
        found
    }

    /// How many groups are followed.
    #[cfg(test)]
    pub(crate) fn followed(&self) -> usize {
        self.followed
    }

    /// A workload in the group `path` was worth engaging: if the group comes back, as that of a service that is restarted does,
    /// it is not left out while it is young.
    pub(crate) fn expect(&mut self, path: &Path) {
        self.expected.retain(|expected| expected != path);
        self.expected.push_back(path.to_owned());
        if self.expected.len() > Self::MOST_EXPECTED {
            self.expected.pop_front();
        }
    }

    /// The group `path` turned out to be gone: the one above is listed again.
    pub(crate) fn is_gone(&mut self, path: &Path) {
        let mut node = &mut self.top;
        for part in path.parent().into_iter().flat_map(Path::components).skip(1) {
            match node.children.get_mut(part.as_os_str()) {
                Some(child) => node = child,
                None => return,
            }
        }
        node.links = None;
    }
}

struct Step<'a> {
    root: &'a Root,
    hierarchy: &'a Hierarchy,
    now: Duration,
    listed_at: Option<Duration>,
    /// How many more groups can be followed.
    left: usize,
    expected: &'a VecDeque<PathBuf>,
    found: &'a mut Found,
}

impl Node {
    fn new(place: Place, listed_at: Option<Duration>) -> Self {
        Self { place, listed_at, links: None, children: BTreeMap::new() }
    }

    fn count(&self) -> usize {
        self.children.len() + self.children.values().map(Self::count).sum::<usize>()
    }

    fn visit(&mut self, path: &Path, depth: usize, step: &mut Step<'_>) {
        if self.listed_at.is_some_and(|at| step.now.saturating_sub(at) < Walk::GROWN_UP)
            || depth > Walk::DEEPEST
        {
            return;
        }
        // What holds the daemon itself cannot be moved as a whole.
        let is_own = step.hierarchy.own.starts_with(path);
        match &self.place {
            Place::Manager => return,
            Place::Workload(_) if is_own => {}
            Place::Workload(label) => {
                step.found.workloads.push((path.to_owned(), label.clone()));
                return;
            }
            Place::Inner | Place::Unknown => {}
        }
        let dir = step.hierarchy.dir(path);
        let Ok(metadata) = step.root.path(&dir).metadata() else { return };
        // File systems that do not count a directory's children say 1.
        let links = Some(metadata.nlink()).filter(|links| *links >= 2);
        if links != self.links || links.is_none() {
            self.list(path, &dir, step);
            self.links = links;
        }
        let is_leaf = self.children.is_empty();
        if is_leaf && !is_own && self.place == Place::Unknown {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            step.found.workloads.push((path.to_owned(), Label { kind: Kind::Group, name, unit: None }));
            return;
        }
        step.found.shared.push(path.to_owned());
        for (name, child) in &mut self.children {
            child.visit(&path.join(name), depth + 1, step);
        }
    }

    fn list(&mut self, path: &Path, dir: &Path, step: &mut Step<'_>) {
        let Ok(names) = children(step.root, dir) else { return };
        let names: BTreeSet<OsString> = names.into_iter().collect();
        self.children.retain(|name, _| names.contains(name));
        for name in names {
            if step.left == 0 {
                return;
            }
            self.children.entry(name).or_insert_with_key(|name| {
                step.left -= 1;
                let path = path.join(name);
                let listed_at = step.listed_at.filter(|_| !step.expected.contains(&path));
                Node::new(classify(&path), listed_at)
            });
        }
    }
}
