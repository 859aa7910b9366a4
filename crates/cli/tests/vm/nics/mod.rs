//! Drivers of real network cards, on emulated cards: raw frames and UDP, at the usual and at the
//! longest MTU, while the interface is disturbed.
//!
//! A guest is booted for each kernel and card, and runs the whole list. Each line of the list is
//! printed with its result; one that fails does not end the test, but fails it at the end.

mod card;
mod list;

use card::{E1000E, IGB, RTL8139, VMXNET3};

use crate::attachment::Attachment;
use crate::rig::VIRTIO;

/// A test for each card.
macro_rules! cards {
    ($($kernel:ident = $attachment:ident),*) => {
        $(
            mod $kernel {
                use super::*;

                const THIS: Attachment = Attachment::$attachment;

                #[test]
                #[ignore = "needs a virtual machine: cargo xtask vm"]
                fn e1000e() {
                    list::run(THIS, &E1000E);
                }

                #[test]
                #[ignore = "needs a virtual machine: cargo xtask vm"]
                fn igb() {
                    list::run(THIS, &IGB);
                }

                #[test]
                #[ignore = "needs a virtual machine: cargo xtask vm"]
                fn igb_virtual_functions() {
                    list::run_on_virtual_functions(THIS);
                }

                #[test]
                #[ignore = "needs a virtual machine: cargo xtask vm"]
                fn rtl8139() {
                    list::run(THIS, &RTL8139);
                }

                #[test]
                #[ignore = "needs a virtual machine: cargo xtask vm"]
                fn virtio_net() {
                    list::run(THIS, &VIRTIO);
                }

                #[test]
                #[ignore = "needs a virtual machine: cargo xtask vm"]
                fn vmxnet3() {
                    list::run(THIS, &VMXNET3);
                }
            }
        )*
    };
}

cards!(on_6_1 = Nbd, on_6_12 = Ublk, on_7 = Ublk7);
