//! Frames of data that may be on the way to us.
//!
//! Nothing on Ethernet keeps a sender from filling a receive ring. So no more data are asked for
//! than it holds. If data are lost nevertheless, somewhere on the way there is less room: half as
//! much is asked for, and then a frame more with each burst that comes whole.

/// See the module.
#[derive(Debug)]
pub(super) struct Window {
    max: u32,
    size: u32,
    taken: u32,
}

impl Window {
    /// A window of so many frames.
    ///
    /// # Panics
    /// If there are none.
    pub(super) fn new(max: u32) -> Self {
        assert!(max > 0, "a receive ring has frames");
        Self { max, size: max, taken: 0 }
    }

    /// Frames that may be asked for at once, when nothing else is on the way.
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// Takes room for frames; false if there is not as much.
    pub(super) fn take(&mut self, frames: u32) -> bool {
        let fits = self.taken + frames <= self.size;
        self.taken += if fits { frames } else { 0 };
        fits
    }

    /// Returns the room of frames that have come, or will not come.
    pub(super) fn give(&mut self, frames: u32) {
        self.taken -= frames;
    }

    /// A burst has come whole.
    pub(super) fn grow(&mut self) {
        self.size = self.max.min(self.size + 1);
    }

    /// A burst has not.
    pub(super) fn shrink(&mut self) {
        self.size = (self.size / 2).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_halve_it_and_whole_bursts_let_it_grow_to_what_it_was() {
        let mut window = Window::new(8);
        assert!(window.take(5) && !window.take(4) && window.take(3));
        window.shrink();
        window.give(3);
        assert!(!window.take(1), "more is on the way than may be");
        window.give(5);
        assert!(window.take(4) && !window.take(1));
        (0..9).for_each(|_| window.grow());
        assert_eq!(window.size(), 8);
        (0..9).for_each(|_| window.shrink());
        assert_eq!(window.size(), 1);
    }
}
