package overlay

const timeFake = `//go:build faketime

package runtime

import "unsafe"

var faketime int64 = 1767225600000000000

// worldOffset is what a host's clock is ahead.
var worldOffset [worldHosts]int64

//go:linkname nanotime
//go:nosplit
func nanotime() int64 {
	return faketime
}

//go:linkname time_now time.now
func time_now() (sec int64, nsec int32, mono int64) {
	now := faketime + worldOffset[getg().host]
	return now / 1e9, int32(now % 1e9), faketime
}

//go:nowritebarrierrec
func write(fd uintptr, p unsafe.Pointer, n int32) int32 {
	return write1(fd, p, n)
}
`

const runtimeWorld = `//go:build faketime

package runtime

import (
	"internal/chacha8rand"
	_ "unsafe"
)

const worldHosts = 256

const (
	worldRuns = iota
	worldFrozen
	worldKilled
)

var (
	worldState  [worldHosts]uint8
	worldAside  [worldHosts]gQueue
	worldChaCha chacha8rand.State
	worldCheap  struct{ cheaprand uint64 }
	worldSeeded bool
	// worldPicks counts what the scheduler has picked; a fault can be due at one.
	worldPicks uint64
	worldDueAt uint64
	worldDueOf int32
	worldDueTo uint8
	worldMix   uint64
)

func worldSeedOnce() {
	if worldSeeded {
		return
	}
	worldSeeded = true
	world_seed(1)
}

//go:linkname world_seed
func world_seed(seed uint64) {
	worldChaCha.Init64([4]uint64{seed, 1, 2, 3})
	worldCheap.cheaprand = seed * 0x9e3779b97f4a7c15
}

//go:linkname world_mix
func world_mix() (picks, mix uint64) { return worldPicks, worldMix }

//go:linkname world_host
func world_host() int32 { return getg().host }

//go:linkname world_enter
func world_enter(host int32) int32 {
	was := getg().host
	getg().host = host
	return was
}

//go:linkname world_offset
func world_offset(host int32, ns int64) { worldOffset[host] = ns }

// world_state has a host run, freeze or die.
//
//go:linkname world_state
func world_state(host int32, state uint8) {
	worldState[host] = state
	if state != worldRuns {
		return
	}
	systemstack(func() {
		q := &worldAside[host]
		for !q.empty() {
			gp := q.pop()
			gp.putBy = false
			runqput(getg().m.p.ptr(), gp, false)
		}
	})
}

// world_due changes a host's state when the scheduler has picked n more goroutines of it.
//
//go:linkname world_due
func world_due(host int32, n uint64, state uint8) {
	worldDueOf, worldDueAt, worldDueTo = host, n, state
}

// worldPicked is a goroutine that the scheduler picked: to find where two runs of a seed part.
type worldPicked struct{ goid, at, start, pc, random uint64 }

var worldOrder []worldPicked

//go:linkname world_order
func world_order(n int) []worldPicked {
	was := worldOrder
	if n > 0 {
		worldOrder = make([]worldPicked, n)
	}
	return was
}

func worldGone(host int32) bool { return worldState[host] == worldKilled }

func worldNothing(arg any, seq uintptr, delay int64) {}

func worldPick(gp *g) {
	worldPicks++
	worldMix = (worldMix ^ gp.goid) * 0x100000001b3
	if worldOrder != nil && worldPicks < uint64(len(worldOrder)) {
		worldOrder[worldPicks] = worldPicked{gp.goid, uint64(faketime), uint64(gp.startpc), uint64(gp.sched.pc), uint64(worldCheap.cheaprand)}
	}
	if worldDueAt > 0 && gp.host == worldDueOf {
		worldDueAt--
		if worldDueAt == 0 {
			worldState[gp.host] = worldDueTo
		}
	}
}

func worldHolds(gp *g) bool {
	if worldState[gp.host] == worldRuns {
		return false
	}
	gp.putBy = true
	worldAside[gp.host].pushBack(gp)
	return true
}

//go:linkname world_read
func world_read(b []byte) {
	for i := range b {
		b[i] = byte(rand())
	}
}
`

const syscallFake = `//go:build faketime

package syscall

const faketime = false

func faketimeWrite(fd int, p []byte) int { panic("not called") }
`

const syscallWorld = `//go:build faketime

package syscall

import _ "unsafe"

//go:linkname runtime_worldHost runtime.world_host
func runtime_worldHost() int32

func worldPid() int {
	if h := runtime_worldHost(); h != 0 {
		return 1000 + int(h)
	}
	return 0
}
`

const osWorld = `//go:build faketime

package os

import (
	"internal/strconv"
	_ "unsafe"
)

//go:linkname runtime_worldHost runtime.world_host
func runtime_worldHost() int32

func worldHostname() string {
	if h := runtime_worldHost(); h != 0 {
		return "host" + strconv.Itoa(int(h))
	}
	return ""
}
`

const netWorld = `//go:build faketime

package net

import "context"

// WorldDial and WorldListen are the world's network.
var (
	WorldDial   func(ctx context.Context, network, address string) (Conn, error)
	WorldListen func(network, address string) (Listener, error)
)
`

const sysrandWorld = `package sysrand

import _ "unsafe"

//go:linkname runtime_worldRead runtime.world_read
func runtime_worldRead(b []byte)

func worldRead(b []byte) bool {
	runtime_worldRead(b)
	return true
}
`
