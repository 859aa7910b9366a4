//! The requests of one job: which is next, and how long each takes.

use std::time::Instant;

use tyche_block::{Arena, Extent, Operation, Request};
use tyche_engine::Histogram;

use super::shape::{Pattern, Random, Shape};
use crate::shared::error::{Code, Error, Result};

/// The request generator of one job: draws requests, and records their latencies. A request in
/// flight has a token, less than the depth.
pub(super) struct Requests {
    shape: Shape,
    blocks: u64,
    random: Random,
    /// Position of the next sequential request.
    next: u64,
    /// When each request in flight began, by its token.
    begun: Vec<Instant>,
    pub(super) latencies_ns: Histogram,
}

impl Requests {
    /// Requests for a disk of `size` bytes. Job `job` of `jobs` starts at its share of it.
    pub(super) fn new(shape: Shape, size: u64, (job, jobs): (u64, u64)) -> Self {
        let blocks = size / u64::from(shape.len);
        Self {
            shape,
            blocks,
            random: Random::new(job),
            next: blocks * job / jobs,
            begun: vec![Instant::now(); shape.depth.into()],
            latencies_ns: Histogram::new(),
        }
    }

    /// Allocates the requests' memory, with random content, each with its token.
    ///
    /// # Errors
    /// There is not enough memory.
    pub(super) fn buffers(&mut self, arena: &Arena) -> Result<Vec<(u64, Extent)>> {
        let mut buffers = Vec::with_capacity(self.shape.depth.into());
        let nodes = arena.nodes();
        for token in 0..u64::from(self.shape.depth) {
            // Spread evenly over the nodes.
            let node = nodes.get(token as usize % nodes.len().max(1));
            let len = self.shape.len as usize;
            let buffer = node.map_or_else(|| arena.alloc(len), |node| arena.alloc_near(*node, len));
            let mut buffer = buffer
                .ok_or_else(|| Error::new(Code::Usage, "not enough memory: lower --iodepth"))?;
            for byte in buffer.iter_mut() {
                *byte = (self.random.next() >> 24) as u8;
            }
            buffers.push((token, buffer));
        }
        Ok(buffers)
    }

    /// The next request, which begins now.
    pub(super) fn begin(&mut self, token: u64, buffer: Extent) -> Request {
        let is_read = self.random.percent(self.shape.reads_of_100);
        let block = match self.shape.pattern {
            Pattern::Read | Pattern::Write | Pattern::Rw => self.next,
            _ => self.random.next() % self.blocks,
        };
        self.next = (self.next + 1) % self.blocks;
        self.begun[token as usize] = Instant::now();
        Request {
            operation: if is_read { Operation::Read } else { Operation::Write { fua: false } },
            offset: block * u64::from(self.shape.len),
            len: self.shape.len,
            buffer: Some(buffer),
        }
    }

    /// A request is answered at this time; returns when it began.
    pub(super) fn answered(&mut self, token: u64, now: Instant) -> Instant {
        let begun = self.begun[token as usize];
        self.latencies_ns.add(now.duration_since(begun).as_nanos() as u64);
        begun
    }
}
