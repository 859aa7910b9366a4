//! Checks of the content that reads return, and of the holes that a status tells.

use tyche_block::{StatusRun, status_runs};

use super::{History, IMPOSSIBLE, Step, Submitted, find, observe, wrong};
use crate::content::{Content, SECTOR, examine};

impl History {
    pub(super) fn check_read(
        &mut self,
        now: Step,
        read: &Submitted,
        data: &[u8],
    ) -> Result<(), String> {
        let began = read.began;
        for (sector, bytes) in read.sectors().zip(data.chunks_exact(SECTOR)) {
            let content = examine(bytes, sector);
            let values = &mut self.sectors[sector as usize];
            if self.lost < began {
                observe(values, content, began, now)
            } else {
                find(values, content, began).map(drop)
            }
            .map_err(|why| wrong("a read returned", (content, sector), why, values))?;
        }
        Ok(())
    }

    /// Checks that no sector is told as a hole that a read could not have seen zeroed, discarded or
    /// never written: who copies the disk would leave it out.
    pub(super) fn check_status(&mut self, status: &Submitted, data: &[u8]) -> Result<(), String> {
        let Submitted { offset, began, .. } = *status;
        let runs = status_runs(data, offset, SECTOR as u32).ok_or("a status is no list of runs")?;
        let mut sector = offset / SECTOR as u64;
        for StatusRun { len, is_hole, is_zero } in runs {
            let sectors = sector..sector + len / SECTOR as u64;
            sector = sectors.end;
            if !is_hole && !is_zero {
                continue;
            }
            for sector in sectors {
                let values = self.sectors.get(sector as usize).ok_or("a hole beyond the disk")?;
                if !values.iter().any(|value| value.zeroes && value.is_possible(began)) {
                    let told = (Content::Zero, sector);
                    return Err(wrong("a status told", told, IMPOSSIBLE, values));
                }
                self.holes += 1;
            }
        }
        Ok(())
    }

    /// Sectors that were told as holes.
    pub(crate) fn holes(&self) -> u64 {
        self.holes
    }
}
