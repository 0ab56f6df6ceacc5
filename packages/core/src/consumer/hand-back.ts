/** Thrown inside the runtime, never by users: this delivery was not really started; give it back without counting. */
export class HandBack extends Error {}
