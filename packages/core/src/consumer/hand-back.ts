/** Ends the handler call of a delivery that was given back: it was not really started, so nothing of it counts. */
export class HandBack extends Error {
  constructor() {
    super('the delivery was handed back, as its subscription is closing')
  }
}
