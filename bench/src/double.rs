//! The configurations of the paper on remote block I/O over RDMA (Marazakis et al., ICS 2006,
//! section 4.1), over the double of `tyche-lab`.

use serde::{Deserialize, Serialize};

/// How both ends of a link over the double work, and what the target exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Double {
    /// Whether small messages are eliminated.
    eliminates: bool,
    /// Whether interrupts are silenced.
    silences: bool,
    /// Whether writes and interrupts take the time of the paper's card.
    has_card: bool,
    /// How many requests the driver of the modelled disks waits for; `None`: memory is exported.
    batch: Option<u16>,
}

const BASE: Double = Double { eliminates: false, silences: false, has_card: true, batch: Some(1) };
const BASE1: Double = Double { silences: true, ..BASE };
const ELIM: Double = Double { eliminates: true, ..BASE1 };

/// All of them: under the names of the paper, and as ELIM those with elimination.
pub(crate) const DOUBLES: [(&str, Double); 8] = [
    ("LOCAL", Double { has_card: false, ..ELIM }),
    ("BASE", BASE),
    ("BASE1", BASE1),
    ("BASE4", Double { batch: Some(4), ..BASE1 }),
    ("BASE16", Double { batch: Some(16), ..BASE1 }),
    ("ELIM0", Double { silences: false, ..ELIM }),
    ("ELIM", ELIM),
    ("ELIM16", Double { batch: Some(16), ..ELIM }),
];

impl Double {
    /// The configuration of that name.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn named(name: &str) -> Self {
        let known = DOUBLES.iter().find(|it| it.0 == name);
        known.unwrap_or_else(|| panic!("no configuration {name}")).1
    }

    /// The same with memory in place of disks.
    pub(crate) fn on_memory(self) -> Self {
        Self { batch: None, ..self }
    }

    /// The same without the times of a card.
    pub(crate) fn without_card(self) -> Self {
        Self { has_card: false, ..self }
    }

    /// The options of either end.
    pub(crate) fn link(self) -> [&'static str; 7] {
        let queue = if self.eliminates { "eliminate" } else { "base" };
        let interrupts = if self.silences { "silenced" } else { "each" };
        let model = if self.has_card { "ics2006" } else { "none" };
        ["--rdma-double", "--rdma-queue", queue, "--interrupts", interrupts, "--rdma-model", model]
    }

    /// The options of the target's disks.
    pub(crate) fn disks(self) -> Vec<String> {
        let Some(batch) = self.batch else { return Vec::new() };
        ["--disk-model", "ics2006", "--batch-factor", &batch.to_string()].map(str::to_owned).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_are_those_of_the_paper() {
        let double = Double::named("BASE16");
        assert!(double.link().contains(&"base") && double.link().contains(&"silenced"));
        assert_eq!(double.disks().last().unwrap(), "16");
        assert!(double.on_memory().disks().is_empty());
        assert!(Double::named("LOCAL").link().contains(&"none"));
    }
}
