package tokens

import (
	"context"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// A SealedStore is a [Store] that encrypts the records of another one. See [Seal].
type SealedStore struct {
	store Store
	aeads []cipher.AEAD
	plain bool // records without a seal are accepted
}

// Seal returns a store that keeps sealed records in store. The first AEAD encrypts; all decrypt,
// each in turn. They must be safe for concurrent use, as those of the standard library are.
// AES-256-GCM with random nonces is good for 2^32 writes per key; [cipher.NewGCM] and
// [cipher.NewGCMWithRandomNonce] will do. Nonces of 1 to 11 bytes are refused, as random ones would
// repeat.
//
// All of a record is encrypted. The store sees the account's name, the version (Fence and Step),
// and whether there are tokens. Name and version are associated data: a record does not open under
// another account or as another version. A program that can write to the store can still delete a
// record, or put an earlier one of the same account back.
//
// To rotate keys, start all processes with the new AEAD behind the old one, then all with the new
// one first. A record is sealed anew when it is next saved, and by [SealedStore.Reseal]. Drop the
// old AEAD when this has happened to all records.
//
// A record that does not open is an error that Is [ErrSeal], and names the account. It is never
// taken for an absent one, and the provider is not asked. [Keeper.Replace] and [Keeper.Forget]
// overwrite such a record.
func Seal(store Store, aeads ...cipher.AEAD) (*SealedStore, error) {
	if store == nil {
		return nil, errors.New("tokens: Seal: the store is nil")
	}
	if len(aeads) == 0 {
		return nil, errors.New("tokens: Seal: there is no AEAD: give one at least")
	}
	for i, a := range aeads {
		if a == nil {
			return nil, fmt.Errorf("tokens: Seal: AEAD %d is nil", i)
		}
		if n := a.NonceSize(); n > 0 && n < 12 {
			return nil, fmt.Errorf("tokens: Seal: AEAD %d has nonces of %d bytes: use one with 12 or more", i, n)
		}
	}
	return &SealedStore{store: store, aeads: append([]cipher.AEAD(nil), aeads...)}, nil
}

// AcceptPlain returns a store that also loads records that are not sealed, as those of before Seal
// was used. Saved records are sealed. Use it until [SealedStore.Reseal] has sealed all accounts: a
// program that can write to the store can give accounts tokens of its own until then.
func (s *SealedStore) AcceptPlain() *SealedStore {
	return &SealedStore{store: s.store, aeads: s.aeads, plain: true}
}

// Reseal seals the account's record with the first AEAD, whatever it was sealed with. It may run
// while Keepers use the account: a record that one of them saves meanwhile stays, and is sealed as
// well.
func (s *SealedStore) Reseal(ctx context.Context, account string) error {
	r, err := s.Load(ctx, account)
	if err != nil {
		return err
	}
	if err := s.Save(ctx, account, r); !errors.Is(err, ErrSuperseded) {
		return err
	}
	return nil
}

// Load implements [Store].
func (s *SealedStore) Load(ctx context.Context, account string) (Record, error) {
	r, err := s.store.Load(ctx, account)
	if err != nil || r.Empty() {
		return r, err
	}
	if !r.sealed() {
		if s.plain {
			return r, nil
		}
		return Record{}, sealError(account, "it is not sealed: see SealedStore.AcceptPlain")
	}
	text, err := base64.RawURLEncoding.DecodeString(r.RefreshToken.Reveal()[len(sealPrefix):])
	if err != nil {
		return Record{}, sealError(account, "it is damaged")
	}
	for _, a := range s.aeads {
		n := a.NonceSize()
		if len(text) < n {
			continue
		}
		plain, err := a.Open(nil, text[:n], text[n:], sealedWith(account, r))
		if err != nil {
			continue
		}
		if r, err = DecodeRecord(plain); err != nil {
			return Record{}, sealError(account, "its content is no record") // err might tell of the content
		}
		return r, nil
	}
	return Record{}, sealError(account,
		"none of the AEADs opens it: it was sealed with another key, for another account or version, or was changed")
}

// Save implements [Store].
func (s *SealedStore) Save(ctx context.Context, account string, r Record) error {
	if r.Empty() {
		return s.store.Save(ctx, account, Record{Fence: r.Fence, Step: r.Step}) // a store may delete it in time
	}
	plain, err := r.Encode()
	if err != nil {
		return fmt.Errorf("tokens: seal account %q: %w", account, err)
	}
	a := s.aeads[0]
	nonce := make([]byte, a.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	text := sealPrefix + base64.RawURLEncoding.EncodeToString(a.Seal(nonce, nonce, plain, sealedWith(account, r)))
	return s.store.Save(ctx, account, Record{Fence: r.Fence, Step: r.Step, RefreshToken: NewSecret(text)})
}

// sealPrefix begins the refresh token of a sealed record. The rest is base64 of nonce and
// ciphertext.
const sealPrefix = "holdfast:sealed:1:"

// sealed reports whether r is a record as SealedStore stores it.
func (r *Record) sealed() bool { return strings.HasPrefix(r.RefreshToken.Reveal(), sealPrefix) }

// sealedWith returns the associated data.
func sealedWith(account string, r Record) []byte {
	b := binary.BigEndian.AppendUint64([]byte(sealPrefix), r.Fence)
	return append(binary.BigEndian.AppendUint32(b, r.Step), account...)
}

func sealError(account, why string) error {
	return fmt.Errorf("%w: account %q: %s", ErrSeal, account, why)
}
