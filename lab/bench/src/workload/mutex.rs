//! A `pthread` mutex around a value. `std::sync::Mutex` spins before it sleeps, which would hide what the
//! papers' programs do.

use std::cell::UnsafeCell;

/// A value that only the holder of a default `pthread` mutex can access.
pub(super) struct PthreadMutex<T> {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only accessed with the mutex held, so threads take turns, which `T: Send` allows; and
// a pthread mutex may be used by all threads.
unsafe impl<T: Send> Sync for PthreadMutex<T> {}

impl<T> PthreadMutex<T> {
    /// Can be moved until it is first locked, like every statically initialised pthread mutex.
    pub(super) const fn new(value: T) -> Self {
        Self { mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER), value: UnsafeCell::new(value) }
    }

    /// Calls `inside` with the value while holding the mutex; `inside` must not lock it again. An initialised
    /// default mutex that is not locked recursively cannot fail, so the results of lock and unlock are
    /// ignored. If `inside` panics, the mutex stays locked.
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
