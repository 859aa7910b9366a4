//! Metrics in families: a name, a kind and a help text, and a sample for each set of labels.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use tyche_counters::Kind;

/// The description of a family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Definition {
    /// Its name. That of a counter has `_total` behind it in what is exported.
    pub(super) name: Cow<'static, str>,
    /// Its kind.
    pub(super) kind: Kind,
    /// The names of the labels that its samples may have.
    pub(super) labels: Cow<'static, [&'static str]>,
    /// Its description, in a sentence.
    pub(super) help: Cow<'static, str>,
}

impl Definition {
    /// Its name as it is exported.
    #[cfg(test)]
    pub(super) fn full_name(&self) -> String {
        let suffix = if self.kind == Kind::Counter { "_total" } else { "" };
        format!("{}{suffix}", self.name)
    }
}

/// The labels of a sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Labels(Vec<(&'static str, String)>);

impl Labels {
    /// These and one more. A label without a value is left out: Prometheus makes no difference.
    pub(super) fn with(&self, name: &'static str, value: impl Into<String>) -> Self {
        let (mut labels, value) = (self.0.clone(), value.into());
        if !value.is_empty() {
            labels.push((name, value));
        }
        Self(labels)
    }
}

/// The value of a sample.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// A whole number.
    Whole(u64),
    /// A number.
    Real(f64),
    /// Numbers of values by their size: the sum of all, their number, and the number in each bucket
    /// with its upper bound, the last of which is infinite.
    Sizes { sum: f64, count: u64, buckets: Vec<(f64, u64)> },
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

/// All metrics of a machine at one time.
#[derive(Debug, Default)]
pub(super) struct Families(BTreeMap<Cow<'static, str>, Family>);

#[derive(Debug)]
struct Family {
    definition: Definition,
    samples: Vec<(Labels, Value)>,
}

impl Families {
    /// Adds a sample to a family.
    pub(super) fn add(
        &mut self,
        definition: &Definition,
        labels: &Labels,
        value: impl Into<Value>,
    ) {
        let new = || Family { definition: definition.clone(), samples: Vec::new() };
        let family = self.0.entry(definition.name.clone()).or_insert_with(new);
        family.samples.push((labels.clone(), value.into()));
    }

    /// The definitions of the families that have samples.
    #[cfg(test)]
    pub(super) fn definitions(&self) -> impl Iterator<Item = &Definition> {
        self.0.values().map(|family| &family.definition)
    }

    /// The names of the labels of all samples, by family.
    #[cfg(test)]
    pub(super) fn label_names(&self) -> impl Iterator<Item = (&Definition, Vec<&'static str>)> {
        self.0.values().flat_map(|Family { definition, samples }| {
            let names = |labels: &Labels| labels.0.iter().map(|(name, _)| *name).collect();
            samples.iter().map(move |(labels, _)| (definition, names(labels)))
        })
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for Family { definition: Definition { name, kind, help, .. }, samples } in self.0.values() {
            let kind = match kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (labels, value) in samples {
                encode(family.encode_family(&labels.0)?, kind, value)?;
            }
        }
        Ok(())
    }
}

fn encode(mut encoder: MetricEncoder<'_>, kind: MetricType, value: &Value) -> fmt::Result {
    match (value, kind) {
        (Value::Sizes { sum, count, buckets }, _) => {
            encoder.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None)
        }
        (Value::Whole(value), MetricType::Counter) => {
            encoder.encode_counter::<NoLabelSet, _, f64>(value, None)
        }
        (Value::Real(value), MetricType::Counter) => {
            encoder.encode_counter::<NoLabelSet, _, f64>(value, None)
        }
        (Value::Whole(value), _) => encoder.encode_gauge(value),
        (Value::Real(value), _) => encoder.encode_gauge(value),
    }
}
