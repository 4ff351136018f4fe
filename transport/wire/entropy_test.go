package wire

import "testing"

// entropyCodec tests the entropy header: UE 3.5.10.1.
var entropyCodec = codec[Entropy]{
	parse: ParseEntropy,
	put:   (*Entropy).Append,
	text:  (*Entropy).String,
	vectors: []vector[Entropy]{{
		name: "reference provider", // refprov-send-rud-ack 1
		bytes: `
			f25a      # entropy value
			0000/ffff # reserved`,
		want: Entropy{EV: 0xf25a},
		text: "entropy=0xf25a",
	}},
}

func TestEntropy(t *testing.T) { entropyCodec.test(t) }
func FuzzEntropy(f *testing.F) { entropyCodec.fuzz(f) }
