package lock

import "time"

// Properties is what a back end promises, as data: printed for operators, asserted on real servers by the tests.
type Properties struct {
	Backend  string        `json:"backend"`
	Clock    Clock         `json:"clock"`              // whose clock ends a lease on the server
	MinTTL   time.Duration `json:"min_ttl_ns"`         // a shorter TTL is refused
	Step     time.Duration `json:"step_ns,omitempty"`  // TTLs are rounded up to a multiple of this
	Fencing  TokenOrigin   `json:"fencing,omitempty"`  // where tokens come from; empty: no tokens
	FIFO     bool          `json:"fifo"`               // waiters get their turn in the order in which they came, across processes
	Wake     Wake          `json:"wake"`               // how a waiter learns that the key is free
	Death    Death         `json:"death"`              // when a key whose holder died is free
	Restart  Restart       `json:"restart"`            // what a restart of the server does to leases
	Failover Failover      `json:"failover"`           // what the loss of the server that granted does to leases
	Reenter  bool          `json:"reenter,omitempty"`  // the same holder may hold the key more than once
	Sessions bool          `json:"sessions,omitempty"` // every grant or waiter occupies a connection
}

// Clock is whose clock ends a lease. The holder's own deadline is always on its own monotonic clock.
type Clock string

// The clocks.
const (
	ServerWall      Clock = "server wall clock"       // setting that clock forward ends leases early
	ServerTimer     Clock = "server timer"            // setting its clock back prolongs leases, forward does nothing
	ServerMonotonic Clock = "server monotonic clock"  // setting a clock does nothing
	MajorityWall    Clock = "majority of wall clocks" // one server's clock may jump, a majority's may not
)

// TokenOrigin is where fencing tokens come from.
type TokenOrigin string

// The origins of tokens.
const (
	NoTokens         TokenOrigin = ""
	EtcdRevision     TokenOrigin = "etcd revision"
	ZooKeeperZxid    TokenOrigin = "zookeeper czxid"
	PostgresSequence TokenOrigin = "postgres sequence"
)

// Wake is how a waiter learns that a key is free.
type Wake string

// The ways to learn it.
const (
	Published Wake = "published" // told, and looking now and then in case nobody tells
	Queued    Wake = "queued"    // the server hands the key to the next in its queue
	Polled    Wake = "polled"    // looks again with growing random pauses
)

// Death is when the key of a holder that died is free.
type Death string

// The times of death.
const (
	AfterTTL     Death = "when the lease ends"
	OnDisconnect Death = "when its connection ends, at the latest when the lease ends"
)

// Restart is what an orderly restart of the server does to leases.
type Restart string

// What a restart may do.
const (
	Keeps     Restart = "keeps: leases end when they would have ended"
	Prolongs  Restart = "prolongs: leases begin anew, so a dead holder's key is free one TTL after the restart at the latest"
	Forgets   Restart = "forgets: every key is free"
	AsStorage Restart = "keeps what is on its disk: with appendfsync always all, otherwise some leases may be forgotten"
)

// Failover is what the loss of the server that granted does to leases.
type Failover string

// What a failover may do.
const (
	MayForget    Failover = "may forget: two holders are possible, only a token stops the older"
	AsReplicated Failover = "keeps what the confirmed replicas have, if one of them is promoted"
	Majority     Failover = "keeps while a majority keeps its disk and its clock"
	Consensus    Failover = "keeps: decided by a majority"
)
