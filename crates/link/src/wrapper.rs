//! Links around links.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use tyche_counters::Reading;
use tyche_numa::Node;

use crate::ip::Transport;
use crate::{Interface, Link, Mac, Placement, Receiver, RxBatch, Share, TxBatch};

/// A link that handles the frames of another. Every method of [`Link`] that a wrapper does not
/// mention goes to the inner link.
pub trait Wrapper: Send {
    /// The kind of the inner link.
    type Inner: Link + ?Sized;

    /// The inner link.
    fn inner(&self) -> &Self::Inner;

    /// As [`inner`](Self::inner).
    fn inner_mut(&mut self) -> &mut Self::Inner;

    /// As [`Link::receive`].
    ///
    /// # Errors
    /// As [`Link::receive`].
    fn receive(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        self.inner_mut().receive(batch)
    }

    /// As [`Link::send`].
    ///
    /// # Errors
    /// As [`Link::send`].
    fn send(&mut self, batch: &TxBatch<'_>) -> io::Result<usize> {
        self.inner_mut().send(batch)
    }

    /// As [`Link::wait_fd`].
    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.inner().wait_fd()
    }

    /// As [`Link::look_after`]. A wrapper that has room for some length only overrides it.
    fn look_after(&mut self) -> Option<usize> {
        self.inner_mut().look_after()
    }

    /// As [`Link::take_receiver`]. The receiving half of the inner link would not pass through the
    /// wrapper, so there is none unless the wrapper makes one.
    ///
    /// # Errors
    /// As [`Link::take_receiver`].
    fn take_receiver(&mut self) -> io::Result<Box<dyn Receiver>> {
        Err(no_receiver(self.inner().name()))
    }

    /// As [`Link::placement`]. What a wrapper does to frames it does not do to data that come
    /// beside them, so there is none unless the wrapper says so.
    fn placement(&self) -> Option<Arc<dyn Placement>> {
        None
    }

    /// As [`Link::counters`]; a wrapper adds its own to those of the inner link.
    fn counters(&self) -> Vec<Reading> {
        self.inner().counters()
    }
}

impl<W: Wrapper> Link for W {
    fn interface(&self) -> Interface<'_> {
        self.inner().interface()
    }

    fn frame_len_max(&self) -> usize {
        self.inner().frame_len_max()
    }

    fn look_after(&mut self) -> Option<usize> {
        Wrapper::look_after(self)
    }

    fn receive_capacity(&self, frame_len: usize) -> usize {
        self.inner().receive_capacity(frame_len)
    }

    fn receive(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        Wrapper::receive(self, batch)
    }

    fn send(&mut self, batch: &TxBatch<'_>) -> io::Result<usize> {
        Wrapper::send(self, batch)
    }

    fn retries(&self) -> bool {
        self.inner().retries()
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        Wrapper::wait_fd(self)
    }

    fn take_receiver(&mut self) -> io::Result<Box<dyn Receiver>> {
        Wrapper::take_receiver(self)
    }

    fn placement(&self) -> Option<Arc<dyn Placement>> {
        Wrapper::placement(self)
    }

    fn transport(&self) -> Option<&'static Transport> {
        self.inner().transport()
    }

    fn origin(&self) -> fn(Mac) -> Mac {
        self.inner().origin()
    }

    fn peer(&self, address: Mac) -> Option<SocketAddr> {
        self.inner().peer(address)
    }

    fn overruns(&mut self) -> u64 {
        self.inner_mut().overruns()
    }

    fn join(&mut self, address: Mac) -> io::Result<()> {
        self.inner_mut().join(address)
    }

    fn leave(&mut self, address: Mac) -> io::Result<()> {
        self.inner_mut().leave(address)
    }

    fn narrow(&mut self, at: usize, bytes: [u8; 4]) {
        self.inner_mut().narrow(at, bytes);
    }

    fn select(&mut self, share: Share) -> bool {
        self.inner_mut().select(share)
    }

    fn stamp_arrivals(&mut self, on: bool) -> bool {
        self.inner_mut().stamp_arrivals(on)
    }

    fn counters(&self) -> Vec<Reading> {
        Wrapper::counters(self)
    }

    fn memory_nodes(&self) -> Vec<Node> {
        self.inner().memory_nodes()
    }
}

/// Lets a wrapper take a link of any kind.
impl<L: Link + ?Sized> Wrapper for Box<L> {
    type Inner = L;

    fn inner(&self) -> &L {
        self
    }

    fn inner_mut(&mut self) -> &mut L {
        self
    }

    fn take_receiver(&mut self) -> io::Result<Box<dyn Receiver>> {
        self.inner_mut().take_receiver()
    }

    fn placement(&self) -> Option<Arc<dyn Placement>> {
        self.inner().placement()
    }
}

/// The error of a link that has no receiving half.
pub(crate) fn no_receiver(name: &str) -> io::Error {
    let message = format!("link {name} cannot receive in a thread of its own");
    io::Error::new(io::ErrorKind::Unsupported, message)
}

/// The error of a link that has no memberships.
pub(crate) fn no_memberships(name: &str) -> io::Error {
    let message = format!("link {name} receives only frames to its own address and to everybody");
    io::Error::new(io::ErrorKind::Unsupported, message)
}
