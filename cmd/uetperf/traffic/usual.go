package traffic

import "time"

// Usual has the default settings of a test.
type Usual struct {
	Size, Reply      string // as on a command line; "" means that there are no replies
	Iters            int64
	Time             time.Duration
	Window, Parallel int    // 0 means no window, one stream
	Progress         string // how the test waits for completions
}

// UsualOf returns the defaults of a test. It returns false if there is no such test.
func UsualOf(test string) (u Usual, ok bool) {
	switch test {
	case Ping:
		u = Usual{Size: "64", Iters: 5, Progress: "auto"}
	case Lat:
		u = Usual{Size: "8:64K:*2", Iters: 10000, Progress: "manual"}
	case BW:
		u = Usual{Size: "1M", Time: 10 * time.Second, Window: 64, Progress: "auto"}
	case Rate:
		u = Usual{Size: "8", Time: 5 * time.Second, Window: 512, Progress: "manual"}
	case Load:
		u = Usual{Size: "4K", Reply: "8", Time: 10 * time.Second, Window: 1024, Progress: "manual"}
	case RR:
		u = Usual{Size: "64", Reply: "64", Time: 10 * time.Second, Window: 1, Progress: "manual"}
	case Incast:
		u = Usual{Size: "256K", Time: 10 * time.Second, Window: 4, Parallel: 8, Progress: "auto"}
	case Soak:
		u = Usual{Size: "0,1,8,64,1000,4K,20000,64K,1M", Time: 10 * time.Minute, Progress: "auto"}
	default:
		return u, false
	}
	return u, true
}
