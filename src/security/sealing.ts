import { createCipheriv, createDecipheriv, createPrivateKey, hkdfSync, randomBytes } from 'node:crypto';

/** AES-256-GCM. Bytes. */
const sizes = { salt: 16, key: 32, nonce: 12, tag: 16 };

/**
 * Encrypts so that only who has the private key can read or change it. `purpose` is authenticated: what was sealed for
 * another one is not opened. Throws if that is no private key.
 */
export function seal(content: Buffer, privateKey: Buffer, purpose: string): Buffer {
  const salt = randomBytes(sizes.salt);
  const { key, nonce } = keyOf(privateKey, salt, purpose);
  const cipher = createCipheriv('aes-256-gcm', key, nonce);
  const encrypted = Buffer.concat([cipher.update(content), cipher.final()]);
  return Buffer.concat([salt, cipher.getAuthTag(), encrypted]);
}

/** Throws if it was sealed by another key or for another purpose, or is damaged. */
export function unseal(sealed: Buffer, privateKey: Buffer, purpose: string): Buffer {
  const [salt, tag, encrypted] = [
    sealed.subarray(0, sizes.salt),
    sealed.subarray(sizes.salt, sizes.salt + sizes.tag),
    sealed.subarray(sizes.salt + sizes.tag),
  ];
  const { key, nonce } = keyOf(privateKey, salt, purpose);
  const decipher = createDecipheriv('aes-256-gcm', key, nonce, { authTagLength: sizes.tag }).setAuthTag(tag);
  return Buffer.concat([decipher.update(encrypted), decipher.final()]);
}

/** With another salt it is another key, so a nonce is never used twice with one. `privateKey`: PEM; its form does not count. */
function keyOf(privateKey: Buffer, salt: Buffer, purpose: string) {
  const secret = createPrivateKey(privateKey).export({ type: 'pkcs8', format: 'der' });
  const derived = Buffer.from(hkdfSync('sha256', secret, salt, purpose, sizes.key + sizes.nonce));
  return { key: derived.subarray(0, sizes.key), nonce: derived.subarray(sizes.key) };
}
