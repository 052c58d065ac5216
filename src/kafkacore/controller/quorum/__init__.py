"""The KRaft controller (KIP-631): every decision is made from an image, and every change comes from replayed
records."""
