//! A host and a target in one process, over TCP on the loopback interface.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::rig::{Client, Data, PATIENCE, SIZE, exercise, target};
use tyche_block::Operation;
use tyche_link::fault::{FaultLink, FaultPlan, Side};
use tyche_link::tcp::{FRAME_LEN_MAX, TcpClient, TcpOptions, TcpServer};
use tyche_remote::{Control, Notice};
use tyche_store::Store;
use tyche_store::memory::MemoryStore;

fn listen(address: SocketAddr) -> TcpServer {
    TcpServer::listen(&[address], &TcpOptions::default()).unwrap()
}

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn dial(address: SocketAddr, options: &TcpOptions) -> Box<TcpClient> {
    Box::new(TcpClient::connect(&[address], options).unwrap())
}

fn store() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(SIZE, 512).unwrap())
}

#[test]
fn requests_of_all_kinds() {
    for socket_buffer in [4 << 20, 64 << 10] {
        let server = listen(any_port());
        let options = TcpOptions { socket_buffer, ..TcpOptions::default() };
        let link = dial(server.address(), &options);
        let _target = target(Box::new(server), store());
        let client = Client::start(link, PATIENCE).connected();
        exercise(&client, 7, 60);
        let report = client.host.control().report().unwrap();
        assert_eq!(report.links[0].frame_len, FRAME_LEN_MAX);
        assert_eq!(report.links[0].port.tx_refused, 0, "a full window finds room");
        assert_eq!(report.waiting.operations, 0);
    }
}

#[test]
fn a_target_that_ends_and_another_at_the_same_address() {
    let server = listen(any_port());
    let address = server.address();
    let store = store();
    let first = target(Box::new(server), Arc::clone(&store));
    let client = Client::start(dial(address, &TcpOptions::default()), PATIENCE).connected();
    client.write(4096, &[3; 4096]).unwrap();
    drop(first);
    client.await_notice(|notice| matches!(notice, Notice::Lost(_)));
    client.submit(Operation::Read, 4096, Data::In(4096), 1);
    let _second = target(Box::new(listen(address)), store);
    client.await_notice(|notice| matches!(notice, Notice::Connected(_)));
    let completion = client.answer();
    assert_eq!(completion.result, Ok(()));
    assert_eq!(completion.buffer.unwrap()[..], [3; 4096]);
    exercise(&client, 8, 10);
}

#[test]
fn damage_between_the_link_and_the_protocol_is_repaired_as_anywhere() {
    let server = listen(any_port());
    let link = *dial(server.address(), &TcpOptions::default());
    let plan = FaultPlan::new();
    plan.set_drop_ppm(10_000);
    plan.set_reorder_ppm(20_000);
    plan.set_corrupt_ppm(5_000);
    let link = FaultLink::new(link, 3, Side::Both, plan).unwrap();
    let _target = target(Box::new(server), store());
    let client = Client::start(Box::new(link), PATIENCE).connected();
    exercise(&client, 9, 60);
    assert!(client.host.control().report().unwrap().channel.retransmitted > 0);
}
