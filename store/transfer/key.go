package transfer

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headway-rl/headway/loop"
)

// keyLife is how long a key opens a parent. A stream that has begun goes on; a receiver whose key is
// too old is left with the control plane.
const keyLife = time.Hour

// Bounds of a receiver's secret, in characters.
const secretCharsMin, secretCharsMax = 16, 128

// SignKey makes what a receiver brings to a parent for one version in one form, until a time. The
// parent's secret signs it, so that no other parent takes it.
func SignKey(secret string, version loop.Version, form string, until time.Time) string {
	of := offerKey{version, form}
	end := strconv.FormatInt(until.Unix(), 10)
	return end + "." + hex.EncodeToString(keySum(secret, of, end))
}

// keySum is the signature of a key.
func keySum(secret string, of offerKey, end string) []byte {
	sum := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(sum, "headway transfer\n%s\n%d\n%s", end, of.version, of.form)
	return sum.Sum(nil)
}

// checkKey refuses a key that the secret did not sign for this version and form, or that is too old.
func checkKey(secret, key string, of offerKey, now time.Time) error {
	end, text, _ := strings.Cut(key, ".")
	sum, err := hex.DecodeString(text)
	if err != nil || !hmac.Equal(sum, keySum(secret, of, end)) {
		return fmt.Errorf("the key is not for version %d%s: ask the control plane for one", of.version, inForm(of.form))
	}
	if until, err := strconv.ParseInt(end, 10, 64); err != nil || now.Unix() > until {
		return errors.New("the key is too old: ask the control plane for another")
	}
	return nil
}

// bearerOf is the bearer of an Authorization header, empty for none.
func bearerOf(header string) string {
	key, _ := strings.CutPrefix(header, "Bearer ")
	return key
}
