//! `--disk-model`: exports in memory that take the time of hard disks.

use std::sync::Arc;

use clap::{Args, ValueEnum};
use tyche_baseline::{DiskArray, DiskArrayStore};
use tyche_store::Store;

// Not a doc comment: clap would show it in place of the description of the command.
#[derive(Args, Clone, Debug)]
pub(crate) struct DiskArgs {
    /// Has requests to exports in memory take the time of hard disks: those of the paper on remote
    /// block I/O over RDMA, eight with 60 MB/s and 12 ms. For serve.
    #[arg(long, value_name = "MODEL", value_enum, default_value_t)]
    disk_model: Disks,

    /// How many requests the driver of these disks waits for while one of them is busy, 100 us at
    /// most, to sort them.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "disk_model",
        value_parser = clap::value_parser!(u16).range(1..))]
    batch_factor: u16,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Disks {
    #[default]
    None,
    Ics2006,
}

impl DiskArgs {
    /// The store, with the times of disks if they are asked for.
    pub(crate) fn store(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        let batch = self.batch_factor.into();
        match self.disk_model {
            Disks::None => store,
            Disks::Ics2006 => {
                Arc::new(DiskArrayStore::new(store, DiskArray { batch, ..DiskArray::ICS_2006 }))
            }
        }
    }
}
