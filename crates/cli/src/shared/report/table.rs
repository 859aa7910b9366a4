//! Groups of counters as JSON: a field for each, with the name and the help of its table.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use tyche_counters::CounterGroup;

/// A group of counters in a report, whose fields they are. Those that a report of another version
/// lacks are 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct Table<G>(pub G);

impl<G> Deref for Table<G> {
    type Target = G;

    fn deref(&self) -> &G {
        &self.0
    }
}

impl<G: CounterGroup> Serialize for Table<G> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(metric, value)| (metric.name, value)))
    }
}

impl<'de, G: CounterGroup> Deserialize<'de> for Table<G> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // By their names, so that fields beside them remain for others (`serde(flatten)`).
        deserializer.deserialize_struct("Table", G::NAMES, Fields(PhantomData))
    }
}

struct Fields<G>(PhantomData<G>);

impl<'de, G: CounterGroup> Visitor<'de> for Fields<G> {
    type Value = Table<G>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with counters")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Table<G>, A::Error> {
        let mut group = G::default();
        while let Some(name) = map.next_key::<String>()? {
            match G::NAMES.iter().zip(group.values_mut()).find(|(it, _)| **it == name) {
                Some((_, value)) => *value = map.next_value()?,
                None => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(Table(group))
    }
}

impl<G: CounterGroup> JsonSchema for Table<G> {
    fn schema_name() -> Cow<'static, str> {
        std::any::type_name::<G>().into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let fields = G::METRICS.iter().map(|metric| {
            let mut schema = generator.subschema_for::<u64>();
            schema.insert("description".to_owned(), metric.help.into());
            (metric.name.to_owned(), schema.into())
        });
        let fields: Map<String, Value> = fields.collect();
        json_schema!({ "type": "object", "properties": fields, "required": G::NAMES })
    }
}
