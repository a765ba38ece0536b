/** Which state a client sees: what all clients have, or what upstream says now. */
export type Side = 'released' | 'canary';
