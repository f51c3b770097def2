//! A world that several engine loops share. One of them acts at a time; simulated time passes only while all of them
//! wait. Who acts next follows from simulated time and the order of the VMs alone.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use gleaner_engine::Wake;
use gleaner_policy::Watch;

use super::ns;
use crate::ids::{Ns, Vm};
use crate::world::World;

/// The world and whose turn it is.
#[derive(Debug)]
pub(super) struct Stage {
    state: Mutex<State>,
    turn: Condvar,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) world: World,
    seats: Vec<Seat>,
    /// The seat that acts; none any more once all have left.
    turn: Option<usize>,
}

/// One engine loop.
#[derive(Debug)]
struct Seat {
    vm: Vm,
    /// What it waits for; nothing once it has left.
    want: Option<Want>,
}

#[derive(Debug, Clone, Copy)]
struct Want {
    until: Ns,
    watch: Option<Watch>,
    /// How often in a row the watch has matched.
    streak: u32,
    /// When to look next.
    next: Ns,
}

impl Want {
    fn new(now: Ns, length: Ns, watch: Option<Watch>) -> Self {
        let want = Self { until: now.saturating_add(length), watch, streak: 0, next: now };
        want.later(now)
    }

    fn later(self, now: Ns) -> Self {
        let step = self.watch.map_or(self.until, |w| now.saturating_add(ns(w.every).max(1)));
        Self { next: step.min(self.until), ..self }
    }
}

impl Stage {
    /// The first of `vms` acts first, at the present time.
    pub(super) fn new(world: World, vms: &[Vm]) -> Self {
        let want = Want { until: world.now(), watch: None, streak: 0, next: world.now() };
        let seats = vms.iter().map(|vm| Seat { vm: *vm, want: Some(want) }).collect();
        Self { state: Mutex::new(State { world, seats, turn: Some(0) }), turn: Condvar::new() }
    }

    /// The world, as the one whose turn it is sees it.
    pub(super) fn world(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn into_world(self) -> World {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).world
    }

    /// Waits until it is the turn of `seat`, which is left when the guard goes, by a panic too.
    pub(super) fn sit_down(&self, seat: usize) -> Seated<'_> {
        drop(self.until_turn(self.world(), seat));
        Seated { stage: self, seat }
    }

    /// Lets simulated time pass for `seat` until `length` has passed, `watch` matches, or the world has ended.
    pub(super) fn wait(&self, seat: usize, length: Ns, watch: Option<Watch>) -> Wake {
        let mut state = self.world();
        let now = state.world.now();
        state.seats[seat].want = Some(Want::new(now, length, watch));
        state.pass_turn();
        self.turn.notify_all();
        let state = self.until_turn(state, seat);
        if state.world.end().is_some() { Wake::Ended } else { Wake::Observe }
    }

    /// `seat` waits no more.
    fn leave(&self, seat: usize) {
        let mut state = self.world();
        state.seats[seat].want = None;
        state.pass_turn();
        self.turn.notify_all();
    }

    fn until_turn<'a>(&'a self, state: MutexGuard<'a, State>, seat: usize) -> MutexGuard<'a, State> {
        let other = |state: &mut State| state.turn != Some(seat);
        self.turn.wait_while(state, other).unwrap_or_else(PoisonError::into_inner)
    }
}

/// A seat that is taken.
pub(super) struct Seated<'a> {
    stage: &'a Stage,
    seat: usize,
}

impl Drop for Seated<'_> {
    fn drop(&mut self) {
        self.stage.leave(self.seat);
    }
}

impl State {
    /// Lets time pass until one of the seats has what it waits for: it acts next.
    fn pass_turn(&mut self) {
        self.turn = loop {
            let waiting = self.seats.iter().enumerate().filter_map(|(seat, s)| Some((s.want?, seat)));
            let Some((want, seat)) = waiting.min_by_key(|(want, seat)| (want.next, *seat)) else {
                break None;
            };
            if self.world.end().is_none() {
                self.world.run_until(want.next);
            }
            if self.world.end().is_some() || self.ready(seat, want) {
                break Some(seat);
            }
        };
    }

    /// Whether what `seat` waits for is there; if not, when it looks again is noted.
    fn ready(&mut self, seat: usize, want: Want) -> bool {
        let now = self.world.now();
        let mut want = want.later(now);
        if let Some(watch) = want.watch {
            let matches = watch.matches(self.world.runnable(self.seats[seat].vm));
            want.streak = if matches { want.streak + 1 } else { 0 };
            if want.streak >= watch.times {
                return true;
            }
        }
        self.seats[seat].want = Some(want);
        now >= want.until
    }
}
