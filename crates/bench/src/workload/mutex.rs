//! A `pthread` mutex around a value. `std::sync::Mutex` spins for a while before it sleeps, which would hide
//! what the programs of the papers do.

use std::cell::UnsafeCell;

/// A value that only the holder of a default `pthread` mutex may touch.
pub(super) struct PthreadMutex<T> {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only accessed with the mutex held, so threads take turns with it, which `T: Send` allows;
// and a pthread mutex may be used by all threads.
unsafe impl<T: Send> Sync for PthreadMutex<T> {}

impl<T> PthreadMutex<T> {
    /// May be moved until it is first locked, like every statically initialised pthread mutex.
    pub(super) const fn new(value: T) -> Self {
        Self { mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER), value: UnsafeCell::new(value) }
    }

    /// Calls `inside` with the value while the mutex is held; `inside` must not lock it again. A default mutex
    /// that is initialised and not locked recursively has no way to fail, so the results of lock and unlock
    /// say nothing. A panic of `inside` leaves it locked.
    pub(super) fn section<R>(&self, inside: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the mutex is initialised, lives as long as `self` and is not held by this thread.
        unsafe { libc::pthread_mutex_lock(self.mutex.get()) };
        // SAFETY: the mutex is held, so no other reference to the value exists.
        let result = inside(unsafe { &mut *self.value.get() });
        // SAFETY: this thread holds the mutex.
        unsafe { libc::pthread_mutex_unlock(self.mutex.get()) };
        result
    }
}
