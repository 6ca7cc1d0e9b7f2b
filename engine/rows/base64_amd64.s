#include "textflag.h"

// By the low half of a letter's byte: the classes that it is not in.
DATA classes<>+0(SB)/8, $0x1111111111111115
DATA classes<>+8(SB)/8, $0x1a1b1b1b1a131111
GLOBL classes<>(SB), RODATA|NOPTR, $16

// By the high half: the class that it belongs to. Both have a bit in common for a byte that is no letter.
DATA halves<>+0(SB)/8, $0x0804080402011010
DATA halves<>+8(SB)/8, $0x1010101010101010
GLOBL halves<>(SB), RODATA|NOPTR, $16

// By the high half, one less for a slash: what makes a letter its six bits.
DATA rolls<>+0(SB)/8, $0xb9b9bfbf04131000
DATA rolls<>+8(SB)/8, $0x0000000000000000
GLOBL rolls<>(SB), RODATA|NOPTR, $16

// The order of bytes in groups of three, and of groups of twelve.
DATA order<>+0(SB)/8, $0x090a040506000102
DATA order<>+8(SB)/8, $0xffffffff0c0d0e08
GLOBL order<>(SB), RODATA|NOPTR, $16
DATA lanes<>+0(SB)/8, $0x0000000100000000
DATA lanes<>+8(SB)/8, $0x0000000400000002
DATA lanes<>+16(SB)/8, $0x0000000600000005
DATA lanes<>+24(SB)/8, $0x0000000700000007
GLOBL lanes<>(SB), RODATA|NOPTR, $32

DATA slash<>+0(SB)/4, $0x2f2f2f2f
GLOBL slash<>(SB), RODATA|NOPTR, $4
DATA pairsOf<>+0(SB)/4, $0x01400140
GLOBL pairsOf<>(SB), RODATA|NOPTR, $4
DATA foursOf<>+0(SB)/4, $0x00011000
GLOBL foursOf<>(SB), RODATA|NOPTR, $4

// func decodeBlocks(to, text *byte, blocks int) int
TEXT ·decodeBlocks(SB), NOSPLIT, $0-32
	MOVQ to+0(FP), DI
	MOVQ text+8(FP), SI
	MOVQ blocks+16(FP), CX
	MOVQ CX, DX
	VBROADCASTI128 classes<>(SB), Y0
	VBROADCASTI128 halves<>(SB), Y1
	VBROADCASTI128 rolls<>(SB), Y2
	VBROADCASTI128 order<>(SB), Y3
	VMOVDQU lanes<>(SB), Y4
	VPBROADCASTD slash<>(SB), Y5
	VPBROADCASTD pairsOf<>(SB), Y6
	VPBROADCASTD foursOf<>(SB), Y7

next:
	TESTQ CX, CX
	JZ    done
	VMOVDQU (SI), Y8
	VPSRLD  $4, Y8, Y9
	VPAND   Y5, Y9, Y9
	VPAND   Y5, Y8, Y10
	VPSHUFB Y9, Y1, Y11
	VPSHUFB Y10, Y0, Y10
	VPTEST  Y10, Y11
	JNZ     done
	VPCMPEQB   Y5, Y8, Y10
	VPADDB     Y9, Y10, Y10
	VPSHUFB    Y10, Y2, Y10
	VPADDB     Y10, Y8, Y8
	VPMADDUBSW Y6, Y8, Y8
	VPMADDWD   Y7, Y8, Y8
	VPSHUFB    Y3, Y8, Y8
	VPERMD     Y8, Y4, Y8
	VMOVDQU    Y8, (DI)
	ADDQ       $32, SI
	ADDQ       $24, DI
	DECQ       CX
	JMP        next

done:
	SUBQ CX, DX
	MOVQ DX, ret+24(FP)
	VZEROUPPER
	RET
