//! Supported VPD pages (00): their numbers, in ascending order.

use super::{SUPPORTED, content, head};
use crate::malformed::Malformed;

/// A set of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages([u64; 4]);

impl Pages {
    /// The set with one more.
    #[must_use]
    pub fn with(mut self, page: u8) -> Self {
        self.0[usize::from(page / 64)] |= 1 << (page % 64);
        self
    }

    /// Whether the set has that page.
    pub fn has(&self, page: u8) -> bool {
        self.0[usize::from(page / 64)] >> (page % 64) & 1 != 0
    }

    /// Writes the page, as much of it as fits; returns how much.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let pages = (0..=u8::MAX).filter(|page| self.has(*page));
        let mut writer = head(out, SUPPORTED, pages.clone().count() as u16);
        pages.for_each(|page| {
            writer.u8(page);
        });
        writer.kept()
    }

    /// Reads the page. The order of the numbers is not checked: some targets have another.
    ///
    /// # Errors
    /// If it is not the page.
    pub fn parse(answer: &[u8]) -> Result<Self, Malformed> {
        let content = content(SUPPORTED, answer)?;
        Ok(content.iter().fold(Self::default(), |pages, page| pages.with(*page)))
    }
}
