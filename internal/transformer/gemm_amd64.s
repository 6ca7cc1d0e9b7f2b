//go:build amd64

#include "textflag.h"

// The kernels compute a tile of C (+)= A·B, sixteen columns wide and four
// rows or one row high. A is read element by element through two strides, so
// that the same code serves A and its transpose; B and C are row-major. Every
// element of C is one chain of fused multiply-adds in the order of k: a row's
// result does not depend on which rows share its tile.
//
// Strides are in bytes.

#define LOAD_ARGS \
	MOVQ k+0(FP), CX; \
	MOVQ a+8(FP), SI; \
	MOVQ rs+16(FP), R8; \
	MOVQ cs+24(FP), R9; \
	MOVQ b+32(FP), DI; \
	MOVQ ldb+40(FP), R10; \
	MOVQ c+48(FP), DX; \
	MOVQ ldc+56(FP), R11; \
	MOVQ accumulate+64(FP), AX

// func kernel4x16(k int, a *float32, rs, cs int, b *float32, ldb int, c *float32, ldc int, accumulate int)
TEXT ·kernel4x16(SB), NOSPLIT, $0-72
	LOAD_ARGS
	LEAQ (R8)(R8*2), R12
	LEAQ (R11)(R11*2), R13
	TESTQ AX, AX
	JZ   zero4
	VMOVUPS (DX), Y0
	VMOVUPS 32(DX), Y1
	VMOVUPS (DX)(R11*1), Y2
	VMOVUPS 32(DX)(R11*1), Y3
	VMOVUPS (DX)(R11*2), Y4
	VMOVUPS 32(DX)(R11*2), Y5
	VMOVUPS (DX)(R13*1), Y6
	VMOVUPS 32(DX)(R13*1), Y7
	JMP  loop4
zero4:
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3
	VXORPS Y4, Y4, Y4
	VXORPS Y5, Y5, Y5
	VXORPS Y6, Y6, Y6
	VXORPS Y7, Y7, Y7
loop4:
	VMOVUPS (DI), Y8
	VMOVUPS 32(DI), Y9
	VBROADCASTSS (SI), Y10
	VBROADCASTSS (SI)(R8*1), Y11
	VBROADCASTSS (SI)(R8*2), Y12
	VBROADCASTSS (SI)(R12*1), Y13
	VFMADD231PS Y8, Y10, Y0
	VFMADD231PS Y9, Y10, Y1
	VFMADD231PS Y8, Y11, Y2
	VFMADD231PS Y9, Y11, Y3
	VFMADD231PS Y8, Y12, Y4
	VFMADD231PS Y9, Y12, Y5
	VFMADD231PS Y8, Y13, Y6
	VFMADD231PS Y9, Y13, Y7
	ADDQ R9, SI
	ADDQ R10, DI
	DECQ CX
	JNZ  loop4
	VMOVUPS Y0, (DX)
	VMOVUPS Y1, 32(DX)
	VMOVUPS Y2, (DX)(R11*1)
	VMOVUPS Y3, 32(DX)(R11*1)
	VMOVUPS Y4, (DX)(R11*2)
	VMOVUPS Y5, 32(DX)(R11*2)
	VMOVUPS Y6, (DX)(R13*1)
	VMOVUPS Y7, 32(DX)(R13*1)
	VZEROUPPER
	RET

// func kernel1x16(k int, a *float32, rs, cs int, b *float32, ldb int, c *float32, ldc int, accumulate int)
TEXT ·kernel1x16(SB), NOSPLIT, $0-72
	LOAD_ARGS
	TESTQ AX, AX
	JZ   zero1
	VMOVUPS (DX), Y0
	VMOVUPS 32(DX), Y1
	JMP  loop1
zero1:
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
loop1:
	VBROADCASTSS (SI), Y10
	VFMADD231PS (DI), Y10, Y0
	VFMADD231PS 32(DI), Y10, Y1
	ADDQ R9, SI
	ADDQ R10, DI
	DECQ CX
	JNZ  loop1
	VMOVUPS Y0, (DX)
	VMOVUPS Y1, 32(DX)
	VZEROUPPER
	RET

// func kernel4x16masked(k int, a *float32, rs, cs int, b *float32, ldb int, c *float32, ldc int, accumulate int, mask *int32)
//
// As kernel4x16, but touches only the columns whose mask word is negative.
TEXT ·kernel4x16masked(SB), NOSPLIT, $0-80
	LOAD_ARGS
	MOVQ mask+72(FP), BX
	VMOVUPS (BX), Y14
	VMOVUPS 32(BX), Y15
	LEAQ (R8)(R8*2), R12
	LEAQ (R11)(R11*2), R13
	TESTQ AX, AX
	JZ   zero4m
	VMASKMOVPS (DX), Y14, Y0
	VMASKMOVPS 32(DX), Y15, Y1
	VMASKMOVPS (DX)(R11*1), Y14, Y2
	VMASKMOVPS 32(DX)(R11*1), Y15, Y3
	VMASKMOVPS (DX)(R11*2), Y14, Y4
	VMASKMOVPS 32(DX)(R11*2), Y15, Y5
	VMASKMOVPS (DX)(R13*1), Y14, Y6
	VMASKMOVPS 32(DX)(R13*1), Y15, Y7
	JMP  loop4m
zero4m:
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3
	VXORPS Y4, Y4, Y4
	VXORPS Y5, Y5, Y5
	VXORPS Y6, Y6, Y6
	VXORPS Y7, Y7, Y7
loop4m:
	VMASKMOVPS (DI), Y14, Y8
	VMASKMOVPS 32(DI), Y15, Y9
	VBROADCASTSS (SI), Y10
	VBROADCASTSS (SI)(R8*1), Y11
	VBROADCASTSS (SI)(R8*2), Y12
	VBROADCASTSS (SI)(R12*1), Y13
	VFMADD231PS Y8, Y10, Y0
	VFMADD231PS Y9, Y10, Y1
	VFMADD231PS Y8, Y11, Y2
	VFMADD231PS Y9, Y11, Y3
	VFMADD231PS Y8, Y12, Y4
	VFMADD231PS Y9, Y12, Y5
	VFMADD231PS Y8, Y13, Y6
	VFMADD231PS Y9, Y13, Y7
	ADDQ R9, SI
	ADDQ R10, DI
	DECQ CX
	JNZ  loop4m
	VMASKMOVPS Y0, Y14, (DX)
	VMASKMOVPS Y1, Y15, 32(DX)
	VMASKMOVPS Y2, Y14, (DX)(R11*1)
	VMASKMOVPS Y3, Y15, 32(DX)(R11*1)
	VMASKMOVPS Y4, Y14, (DX)(R11*2)
	VMASKMOVPS Y5, Y15, 32(DX)(R11*2)
	VMASKMOVPS Y6, Y14, (DX)(R13*1)
	VMASKMOVPS Y7, Y15, 32(DX)(R13*1)
	VZEROUPPER
	RET

// func kernel1x16masked(k int, a *float32, rs, cs int, b *float32, ldb int, c *float32, ldc int, accumulate int, mask *int32)
TEXT ·kernel1x16masked(SB), NOSPLIT, $0-80
	LOAD_ARGS
	MOVQ mask+72(FP), BX
	VMOVUPS (BX), Y14
	VMOVUPS 32(BX), Y15
	TESTQ AX, AX
	JZ   zero1m
	VMASKMOVPS (DX), Y14, Y0
	VMASKMOVPS 32(DX), Y15, Y1
	JMP  loop1m
zero1m:
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
loop1m:
	VBROADCASTSS (SI), Y10
	VMASKMOVPS (DI), Y14, Y8
	VMASKMOVPS 32(DI), Y15, Y9
	VFMADD231PS Y8, Y10, Y0
	VFMADD231PS Y9, Y10, Y1
	ADDQ R9, SI
	ADDQ R10, DI
	DECQ CX
	JNZ  loop1m
	VMASKMOVPS Y0, Y14, (DX)
	VMASKMOVPS Y1, Y15, 32(DX)
	VZEROUPPER
	RET
