use crate::callback::free_box;
use crate::error::{check, Code, Error, Result};
use crate::gang::timeout_number;
use gangway_sys as sys;
use std::fmt;
use std::future::Future;
use std::os::raw::c_void;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};
use std::time::Duration;

/// A collective in flight, which owns its buffers and gives them back when it is done: by [`Work::wait`], or
/// as a future. A work that is dropped in flight is neither cancelled nor waited for; its buffers live until
/// it is done.
///
/// As a future it asks to be polled again at once: the collectives of a rank move when it polls or waits.
#[must_use = "the buffers come back by wait()"]
pub struct Work<O: Send + 'static> {
    handle: NonNull<sys::gw_work>,
    owned: Option<Box<O>>,
}

// Polls and waits may come from any thread; one at a time by &mut.
unsafe impl<O: Send + 'static> Send for Work<O> {}

impl<O: Send + 'static> Work<O> {
    pub(crate) fn new(handle: NonNull<sys::gw_work>, owned: O) -> Work<O> {
        Work::boxed(handle, Box::new(owned))
    }

    /// The value that the work writes itself; it must not move.
    pub(crate) fn boxed(handle: NonNull<sys::gw_work>, owned: Box<O>) -> Work<O> {
        Work { handle, owned: Some(owned) }
    }

    /// Waits until the gang's deadline. After a failure the buffers are gone.
    ///
    /// # Errors
    /// The failure of the collective; or `Caller`: the interrupt hook ended the wait.
    pub fn wait(mut self) -> Result<O> {
        check(unsafe { sys::gw_work_wait(self.handle.as_ptr(), -1) })?;
        self.give_back()
    }

    /// Waits for a time; false: it ran out, which is harmless.
    ///
    /// # Errors
    /// The failure of the collective; or `Caller`: the interrupt hook ended the wait, which breaks nothing.
    pub fn wait_for(&mut self, time: Duration) -> Result<bool> {
        match check(unsafe { sys::gw_work_wait(self.handle.as_ptr(), timeout_number(Some(time))) }) {
            Ok(()) => Ok(true),
            Err(error) if error.code == Code::NotReady => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Never blocks.
    ///
    /// # Errors
    /// The failure of the collective.
    pub fn poll_done(&mut self) -> Result<bool> {
        let mut done = 0;
        check(unsafe { sys::gw_work_poll(self.handle.as_ptr(), &mut done) })?;
        Ok(done != 0)
    }

    /// Ok, or the failure of the work.
    ///
    /// # Errors
    /// The failure of the collective.
    pub fn error(&self) -> Result<()> {
        check(unsafe { sys::gw_work_error(self.handle.as_ptr()) })
    }

    /// Keeps an object alive until the work is done; it is dropped inside a later poll, wait or drop.
    ///
    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn attach<T: Send + 'static>(&self, object: T) -> Result<()> {
        attach(self.handle, Box::new(object))
    }

    fn give_back(&mut self) -> Result<O> {
        match self.owned.take() {
            Some(owned) => Ok(*owned),
            None => Err(Error::new(Code::InvalidState, "this work has given its buffers back already")),
        }
    }
}

/// Waits for all, until the gang's deadline. The first failure is returned, and with it the buffers are gone.
///
/// # Errors
/// The first failure of the collectives; or `Caller`: the interrupt hook ended the wait.
pub fn wait_all<O: Send + 'static>(mut works: Vec<Work<O>>) -> Result<Vec<O>> {
    let handles: Vec<*mut sys::gw_work> = works.iter().map(|work| work.handle.as_ptr()).collect();
    check(unsafe { sys::gw_work_wait_many(handles.as_ptr(), handles.len(), -1) })?;
    works.iter_mut().map(Work::give_back).collect()
}

fn attach<T: Send + 'static>(handle: NonNull<sys::gw_work>, object: Box<T>) -> Result<()> {
    let object: *mut c_void = Box::into_raw(object).cast();
    check(unsafe { sys::gw_work_attach(handle.as_ptr(), object, Some(free_box::<T>)) })
}

impl<O: Send + 'static> Future for Work<O> {
    type Output = Result<O>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<O>> {
        match self.poll_done() {
            Ok(true) => Poll::Ready(self.give_back()),
            Ok(false) => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl<O: Send + 'static> fmt::Debug for Work<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").field("gave_back", &self.owned.is_none()).finish_non_exhaustive()
    }
}

impl<O: Send + 'static> Drop for Work<O> {
    fn drop(&mut self) {
        if let Some(owned) = self.owned.take() {
            let _ = attach(self.handle, owned); // dropped now if the work is done, else when it is
        }
        unsafe { sys::gw_work_release(self.handle.as_ptr()) }
    }
}
