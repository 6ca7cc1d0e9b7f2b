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
	"internal/runtime/math"
	_ "unsafe"
)

const worldHosts = 1024

const (
	worldRuns = iota
	worldFrozen
	worldKilled
)

var (
	worldState  [worldHosts]uint8
	worldAside  [worldHosts]gQueue
	worldChaCha chacha8rand.State
	worldChosen uint64
	worldSeeded bool
	// worldPicks counts what the scheduler has picked; a fault can be due at one.
	worldPicks uint64
	worldDueAt [worldHosts]uint64
	worldDueTo [worldHosts]uint8
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
	worldChosen = seed * 0x9e3779b97f4a7c15
}

// worldCheap is a number below n, for the order of a select's cases. The runtime's own cheap randomness is left to its
// locks, which ask for it as threads meet.
//
//go:nosplit
func worldCheap(n uint32) uint32 {
	worldChosen += 0xa0761d6478bd642f
	hi, lo := math.Mul64(worldChosen, worldChosen^0xe7037ed1a0b428db)
	return uint32((uint64(uint32(hi^lo)) * uint64(n)) >> 32)
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

// world_state has a host run, freeze or die. A dead one stays dead.
//
//go:linkname world_state
func world_state(host int32, state uint8) {
	if worldState[host] == worldKilled {
		return
	}
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

//go:linkname world_state_of
func world_state_of(host int32) uint8 { return worldState[host] }

// world_due changes a host's state when the scheduler has picked n more goroutines of it.
//
//go:linkname world_due
func world_due(host int32, n uint64, state uint8) {
	worldDueAt[host], worldDueTo[host] = n, state
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
		worldOrder[worldPicks] = worldPicked{gp.goid, uint64(faketime), uint64(gp.startpc), uint64(gp.sched.pc), worldChosen}
	}
	if at := &worldDueAt[gp.host]; *at > 0 {
		*at--
		if *at == 0 {
			worldState[gp.host] = worldDueTo[gp.host]
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

// World is the disks of the world, and stands before the calls of every file.
var World interface {
	// Open may refuse to open a file; Opened is told of one that is open.
	Open(path string, flags int) error
	Opened(fd int, path string, flags int)
	// Write comes before bytes are written at an offset, -1 for where the file is.
	Write(fd int, p []byte, offset int64) error
	Truncate(fd int, size int64) error
	Sync(fd int) error
	Closed(fd int)
	// Room sets the room that a file system says it has.
	Room(buf *Statfs_t)
}

func openat(dirfd int, path string, flags int, mode uint32) (fd int, err error) {
	if World != nil {
		if err := World.Open(path, flags); err != nil {
			return -1, err
		}
	}
	fd, err = plainOpenat(dirfd, path, flags, mode)
	if err == nil && World != nil {
		World.Opened(fd, path, flags)
	}
	return fd, err
}

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
