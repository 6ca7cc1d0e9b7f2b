package machine

import _ "unsafe"

// States of a host, as the scheduler knows them.
const (
	runs uint8 = iota
	frozen
	killed
)

//go:linkname runtimeSeed runtime.world_seed
func runtimeSeed(seed uint64)

//go:linkname runtimeMix runtime.world_mix
func runtimeMix() (picks, mix uint64)

//go:linkname runtimeHost runtime.world_host
func runtimeHost() int32

//go:linkname runtimeEnter runtime.world_enter
func runtimeEnter(host int32) int32

//go:linkname runtimeOffset runtime.world_offset
func runtimeOffset(host int32, ns int64)

//go:linkname runtimeState runtime.world_state
func runtimeState(host int32, state uint8)

//go:linkname runtimeDue runtime.world_due
func runtimeDue(host int32, n uint64, state uint8)

// Picked is a goroutine that the scheduler picked.
type Picked struct{ ID, AtNS, Start, PC, Random uint64 }

//go:linkname runtimeOrder runtime.world_order
func runtimeOrder(n int) []Picked

// KeepOrder keeps the first n picks of the scheduler, for [Order].
func KeepOrder(n int) { runtimeOrder(n) }

// Order is the picks that were kept.
func Order() []Picked { return runtimeOrder(0) }

//go:linkname runtimeStateOf runtime.world_state_of
func runtimeStateOf(host int32) uint8
