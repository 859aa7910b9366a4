//! `--fault`: faults injected into links, for tests and measurements.
//!
//! ```text
//! --fault drop=0.5%               every link loses one frame in 200, each way
//! --fault eth1:delay=5ms,drop=1%  only eth1, and later than all the others
//! ```
//!
//! Options add up in the order they come in: for each link, a later setting overrides an earlier
//! one. Faults are injected inside this process, between the protocol and the interface, so they
//! need neither privileges nor a kernel with netem.

use std::time::Duration;

use tyche_console::error::{Code, Error, Result};
use tyche_link::Link;
use tyche_link::fault::{FaultLink, FaultPlan, Side};

/// Syntax of `--fault`, for its help and its error messages.
const SYNTAX: &str = "[INTERFACE:]FAULT,.. with drop=, duplicate=, reorder= or corrupt=PERCENT%, \
                      delay=TIME (ms, us or s), side=send, receive or both, and seed=NUMBER";
/// Maximum delay: longer than in any network, and short enough for a link to hold the frames in
/// flight.
const DELAY_MAX: Duration = Duration::from_secs(10);
/// Parts per million: the unit of probabilities.
const MILLION: f64 = 1e6;

/// One `--fault`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    /// The link's name; `None`: every link.
    link: Option<String>,
    settings: Vec<Setting>,
}

/// One fault, or an option of faults.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Setting {
    /// Parts per million.
    Drop(u32),
    Duplicate(u32),
    Reorder(u32),
    Corrupt(u32),
    Delay(Duration),
    Side(Side),
    Seed(u64),
}

impl Fault {
    /// Parses the value of `--fault`.
    ///
    /// # Errors
    /// The part that was not understood, and the syntax.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        // No setting has a colon; the name of a link over TCP has.
        let (link, settings) = match text.rsplit_once(':') {
            Some((link, settings)) => (Some(link.to_owned()), settings),
            None => (None, text),
        };
        let settings: Option<Vec<_>> = settings.split(',').map(setting).collect();
        match settings {
            Some(settings) if link.as_deref() != Some("") => Ok(Self { link, settings }),
            _ => Err(format!("a fault is {SYNTAX}")),
        }
    }

    fn is_about(&self, link: &str) -> bool {
        self.link.as_deref().is_none_or(|it| it == link)
    }
}

fn setting(text: &str) -> Option<Setting> {
    let (name, value) = text.split_once('=')?;
    Some(match name {
        "drop" => Setting::Drop(share(value)?),
        "duplicate" => Setting::Duplicate(share(value)?),
        "reorder" => Setting::Reorder(share(value)?),
        "corrupt" => Setting::Corrupt(share(value)?),
        "delay" => Setting::Delay(time(value)?),
        "side" => Setting::Side(match value {
            "send" => Side::Send,
            "receive" => Side::Receive,
            "both" => Side::Both,
            _ => return None,
        }),
        "seed" => Setting::Seed(value.parse().ok()?),
        _ => return None,
    })
}

/// Converts a percentage into parts per million.
fn share(text: &str) -> Option<u32> {
    let percent: f64 = text.strip_suffix('%')?.parse().ok()?;
    (0.0..=100.0).contains(&percent).then(|| (percent / 100.0 * MILLION).round() as u32)
}

fn time(text: &str) -> Option<Duration> {
    let units = [("us", 1e6), ("ms", 1e3), ("s", 1.0)];
    let (number, parts) = units
        .into_iter()
        .find_map(|(unit, parts)| text.strip_suffix(unit).map(|number| (number, parts)))?;
    let time = Duration::try_from_secs_f64(number.parse::<f64>().ok()? / parts).ok()?;
    (time <= DELAY_MAX).then_some(time)
}

/// Wraps `links`, each with the name that it was opened by, in the `faults` that concern them.
///
/// # Errors
/// `Usage` if a fault names none of these links; system errors otherwise.
pub(crate) fn wrap(
    links: Vec<(String, Box<dyn Link>)>,
    faults: &[Fault],
) -> Result<Vec<Box<dyn Link>>> {
    for fault in faults.iter().filter_map(|fault| fault.link.as_deref()) {
        if !links.iter().any(|(name, _)| name == fault) {
            let names: Vec<_> = links.iter().map(|(name, _)| name.as_str()).collect();
            let message = format!(
                "--fault {fault}:.. is about a link that is not used; there are: {}",
                names.join(", ")
            );
            return Err(Error::new(Code::Usage, message));
        }
    }
    let links = (0..).zip(links);
    links.map(|(number, (name, link))| wrap_one(number, &name, link, faults)).collect()
}

/// Wraps one link, the `number`th, or returns it unchanged if no fault concerns it.
fn wrap_one(
    number: u64,
    name: &str,
    link: Box<dyn Link>,
    faults: &[Fault],
) -> Result<Box<dyn Link>> {
    let about = faults.iter().filter(|fault| fault.is_about(name));
    let (plan, mut side, mut seed) = (FaultPlan::new(), Side::Both, 0u64);
    let mut any = false;
    for setting in about.flat_map(|fault| &fault.settings) {
        any = true;
        match *setting {
            Setting::Drop(ppm) => plan.set_drop_ppm(ppm),
            Setting::Duplicate(ppm) => plan.set_duplicate_ppm(ppm),
            Setting::Reorder(ppm) => plan.set_reorder_ppm(ppm),
            Setting::Corrupt(ppm) => plan.set_corrupt_ppm(ppm),
            Setting::Delay(delay) => plan.set_delay(delay),
            Setting::Side(it) => side = it,
            Setting::Seed(it) => seed = it,
        }
    }
    if !any {
        return Ok(link);
    }
    tracing::warn!(link = name, "--fault: this link injects faults");
    // Links with the same seed must not lose the same frames.
    Ok(Box::new(FaultLink::new(link, seed.wrapping_add(number), side, plan)?))
}

#[cfg(test)]
mod tests {
    use tyche_link::memory;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn pair(names: [&str; 2]) -> Vec<(String, Box<dyn Link>)> {
        let (a, b) = memory::pair(1514).unwrap();
        let [first, second] = names.map(str::to_owned);
        vec![(first, Box::new(a)), (second, Box::new(b))]
    }

    #[test]
    fn faults_are_about_one_link_or_all() {
        let fault = Fault::parse("delay=5ms,drop=0.5%").unwrap();
        assert_eq!(fault.settings, [Setting::Delay(5 * MS), Setting::Drop(5000)]);
        assert!(fault.is_about("eth0") && fault.is_about("tcp:[::1]:8650"));
        let fault = Fault::parse("tcp:[::1]:8650:delay=300us,side=send,seed=7").unwrap();
        assert!(fault.is_about("tcp:[::1]:8650") && !fault.is_about("eth0"));
        let delay = Setting::Delay(Duration::from_micros(300));
        assert_eq!(fault.settings, [delay, Setting::Side(Side::Send), Setting::Seed(7)]);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let bad = [
            "",
            "drop",
            "drop=",
            "drop=1",
            "drop=101%",
            "drop=-1%",
            "drop=NaN%",
            "delay=5",
            "delay=-1ms",
            "delay=11s",
            "delay=1e99s",
            "side=left",
            "seed=-1",
            "loss=1%",
            "eth0:",
            ":drop=1%",
            "drop=1%,",
            "eth0:drop=1%:x",
        ];
        for text in bad {
            let error = Fault::parse(text).unwrap_err();
            assert!(error.contains("delay=TIME"), "{text}: {error}");
        }
    }

    #[test]
    fn a_fault_about_no_link_is_an_error_that_names_those_there_are() {
        let fault = Fault::parse("eth9:drop=1%").unwrap();
        let error = wrap(pair(["eth0", "eth1"]), &[fault]).map(drop).unwrap_err().to_string();
        assert!(error.contains("eth9") && error.contains("eth0, eth1"), "{error}");
    }

    #[test]
    fn only_links_that_a_fault_is_about_are_wrapped_and_the_last_word_counts() {
        let faults = ["drop=1%", "eth1:drop=100%"].map(|text| Fault::parse(text).unwrap());
        let wrapped = wrap(pair(["eth0", "eth1"]), &faults[1..]).unwrap();
        let counts =
            |link: &dyn Link| link.counters().iter().any(|it| it.0.name == "fault_dropped");
        assert!(!counts(&*wrapped[0]) && counts(&*wrapped[1]));
        let wrapped = wrap(pair(["eth0", "eth1"]), &faults).unwrap();
        assert!(wrapped.iter().all(|link| counts(&**link)));
    }
}
